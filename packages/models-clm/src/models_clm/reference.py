"""The original's dialect: its grammar in, its fields out."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from models_clm.grammar import ClmRequest, read_model, read_questions, read_temperature
from models_clm.text import to_text
from system1_core.answers import Answer, ChoiceAnswer, NoulAnswer, Result
from system1_core.errors import InvalidRequest
from system1_core.request import Question, Request
from system1_core.wire.dialect import Body, Dialect, RequestLimits


class ReferenceDialect(Dialect):
    """Any JSON is a state, `temperature` counts, and confidence is the original's."""

    def parse(self, body: Body, limits: RequestLimits) -> ClmRequest:
        fields = _fields(body, "state")
        return _request(fields, fields["state"], body.num_bytes, limits)

    def parse_batch(self, body: Body, limits: RequestLimits) -> list[Request]:
        """The original has no such route: its own grammar with `states` instead of `state`."""
        fields = _fields(body, "states")
        states = fields["states"]
        if not isinstance(states, list) or not 1 <= len(states) <= limits.max_states:
            msg = f"states: must be an array of 1 to {limits.max_states} states"
            raise InvalidRequest.at(("states",), msg, "type_error", states)
        share = body.num_bytes // len(states)
        return [_request(fields, state, share, limits) for state in states]

    def render(self, request: Request, result: Result, model: str) -> dict[str, Any]:
        asked = zip(request.questions, result.answers, strict=True)
        return {
            "model": model,
            "answers": {question.id: _render(question, answer) for question, answer in asked},
            "usage": {
                "billing_units": len(request.questions),
                "input_tokens": result.input_tokens,
                "output_tokens": 0,
            },
        }

    def accepts_model(self, name: str) -> bool:
        """Any: the processor refuses an unknown one with 422, as the original does."""
        return True


def confidence(probabilities: Sequence[float]) -> float:
    """The largest probability minus the mean of the others, 0 to 1; 1 for a single one."""
    if len(probabilities) == 1:
        return 1.0
    top = max(probabilities)
    others = (math.fsum(probabilities) - top) / (len(probabilities) - 1)
    return min(1.0, max(0.0, top - others))


def _render(question: Question, answer: Answer) -> dict[str, Any]:
    if isinstance(answer, NoulAnswer):
        return {"type": "noul", "noul": answer.probability}
    if isinstance(answer, ChoiceAnswer):
        return {
            "type": "choice",
            "choice": answer.choice,
            "confidence": confidence(tuple(answer.probabilities.values())),
            "probabilities": dict(answer.probabilities),
        }
    return {
        "type": "score",
        "score": answer.score,
        "confidence": confidence(answer.probabilities),
        "legend": {str(i): to_text(level) for i, level in enumerate(question.criteria)},
        "probabilities": {str(i): p for i, p in enumerate(answer.probabilities)},
    }


def _fields(body: Body, state: str) -> Mapping[str, Any]:
    """The body's object, with what it must have."""
    fields = body.json
    if body.parts:
        raise InvalidRequest.at((), "this model reads text only: send plain JSON without parts")
    if not isinstance(fields, dict) or state not in fields:
        raise InvalidRequest.at((), f"the body must be an object with {state} and questions")
    if not isinstance(fields.get("questions"), dict):
        raise InvalidRequest.at(("questions",), "questions: must be an object of questions by id")
    return fields


def _request(
    fields: Mapping[str, Any], state: Any, num_bytes: int, limits: RequestLimits
) -> ClmRequest:
    return ClmRequest(
        model=read_model(fields),
        temperature=read_temperature(fields),
        state=state,
        questions=read_questions(fields["questions"], limits),
        num_bytes=num_bytes,
    )
