"""`POST /v1/rank`: free texts in the order in which they fit a context."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from models_clm.checkpoint import LATEST
from models_clm.grammar import ClmRequest, check_total_options, read_model, read_temperature
from system1_core.answers import ChoiceAnswer
from system1_core.errors import InvalidRequest
from system1_core.request import Question, json_text
from system1_core.wire.dialect import RequestLimits

if TYPE_CHECKING:
    from system1_core.engine import Engine


async def rank(engine: Engine, body: Any, deadline: float | None = None) -> dict[str, Any]:
    """The answer to one body: `{"model", "ranked": [{"rank", "candidate", "prob"}]}`, best first.

    Equal texts keep their order. Raises InvalidRequest.
    """
    request = _parse(body)
    result = await engine.answer(request, deadline)
    answer = result.answers[0]
    assert isinstance(answer, ChoiceAnswer)
    best_first = sorted(answer.probabilities.items(), key=lambda item: -item[1])
    ranked = [
        {"rank": place, "candidate": body["answers"][int(index)], "prob": probability}
        for place, (index, probability) in enumerate(best_first, start=1)
    ]
    return {"model": result.model or LATEST, "ranked": ranked}


def _parse(body: Any) -> ClmRequest:
    if not isinstance(body, dict) or not isinstance(body.get("answers"), list):
        raise InvalidRequest.at((), "the body must be an object with context, question and answers")
    answers = body["answers"]
    if not answers:
        raise InvalidRequest.at(("answers",), "answers: at least 1 is needed", "too_short")
    check_total_options(len(answers), RequestLimits())
    for index, answer in enumerate(answers):
        if not isinstance(answer, str) or not answer:
            msg = f"answers.{index}: must be a non-empty string"
            raise InvalidRequest.at(("answers", index), msg, "type_error", answer)
    context, asked = body.get("context") or "", body.get("question")
    # Candidates may repeat: their places are the options, their texts the descriptions.
    question = Question(
        id="rank",
        type="choice",
        instructions=asked,
        criteria={str(index): answer for index, answer in enumerate(answers)},
    )
    return ClmRequest(
        model=read_model(body),
        temperature=read_temperature(body),
        state=context,
        questions=(question,),
        num_bytes=sum(len(json_text(text)) for text in (context, asked, *answers)),
    )
