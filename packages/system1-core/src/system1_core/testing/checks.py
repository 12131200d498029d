"""What every model family must do, whatever it computes."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from system1_core.config import ModelChoice, ServeConfig
from system1_core.engine import Engine
from system1_core.engines import build, example_request
from system1_core.errors import InvalidRequest
from system1_core.metrics import Metrics
from system1_core.plugins import discover
from system1_core.wire.dialect import Body, RequestLimits
from system1_core.wire.systemone import SystemOne

# Asked beside the example's own questions, so that no type is forgotten and no question is alone.
QUESTIONS: Mapping[str, Mapping[str, Any]] = {
    "choice": {
        "type": "choice",
        "instructions": "What is it about?",
        "criteria": {"money": "prices and payments", "weather": None, "something else": None},
    },
    "score": {"type": "score", "instructions": "How long is it?", "criteria": ["short", "long"]},
    "noul": {"type": "noul", "instructions": "Is it a question?"},
}
# Other clients' states, which share a batch with the example.
NEIGHBOURS = ("", "The sun will shine tomorrow.", "How much is a ticket? " * 8, "12 euros")


def check_family(name: str, *, tolerance: float = 1e-5, **settings: Any) -> None:
    """Serve an installed family in this process and hold it to what the protocol asks of all.

    `name` is NAME or NAME=FOLDER, `settings` are fields of ServeConfig. Asserts that the example
    and a question of each type the family declares are answered, and that renaming ids, asking a
    question alone, the order of questions, and other requests in the same batch move no number by
    more than `tolerance`.
    """
    config = ServeConfig(models=[ModelChoice.parse(name)], **settings)
    asyncio.run(_check(build(config, discover(), Metrics()).first, tolerance))


async def _check(engine: Engine, tolerance: float) -> None:
    example = engine.family.example
    assert example is not None, f"{engine.name}: give the family an example request"
    await engine.start(example_request(engine.family))
    try:
        await _check_answers(engine, example, tolerance)
    finally:
        await engine.close()


async def _check_answers(engine: Engine, example: Mapping[str, Any], tolerance: float) -> None:
    more = {f"check {kind}": QUESTIONS[kind] for kind in engine.family.question_types}
    beside = {key: example[key] for key in example.keys() - {"model", "state", "questions"}}
    ask = Asker(engine, beside)
    state, questions = example["state"], {**example["questions"], **more}
    together = await ask(state, questions)
    assert list(together) == list(questions), "one answer for each question, in order"
    for name, question in questions.items():
        single = await ask(state, {name: question})
        assert distance(single[name], together[name]) <= tolerance, f"{name}: others changed it"
    renamed = await ask(state, {f"other {name}": one for name, one in questions.items()})
    backwards = await ask(state, dict(reversed(questions.items())))
    for name in questions:
        assert distance(renamed[f"other {name}"], together[name]) <= tolerance, "an id changed it"
        assert distance(backwards[name], together[name]) <= tolerance, "the order changed it"
    states, alone = [state], [together]
    for other in NEIGHBOURS:
        with suppress(InvalidRequest):  # a family may read images only
            alone.append(await ask(other, questions))
            states.append(other)
    crowd = await asyncio.gather(*(ask(each, questions) for each in states * 2))
    for index, answers in enumerate(crowd):
        for name in questions:
            moved = distance(answers[name], alone[index % len(states)][name])
            assert moved <= tolerance, f"{name}: another request in its batch changed it"


class Asker:
    """Asks a started engine; `more` stands in every body."""

    def __init__(self, engine: Engine, more: Mapping[str, Any]) -> None:
        self._engine = engine
        self._more = more

    async def __call__(self, state: Any, questions: Mapping[str, Any]) -> dict[str, Any]:
        """The protocol's answers, by question id."""
        dialect = SystemOne()
        body = Body(json={"state": state, "questions": questions, **self._more})
        request = dialect.parse(body, RequestLimits())
        result = await self._engine.answer(request)
        answers: dict[str, Any] = dialect.render(request, result, self._engine.name)["answers"]
        return answers


def distance(one: Mapping[str, Any], other: Mapping[str, Any]) -> float:
    """The largest difference between two answers' probabilities."""
    return max(abs(a - b) for a, b in zip(_numbers(one), _numbers(other), strict=True))


def _numbers(answer: Mapping[str, Any]) -> Sequence[float]:
    if answer["type"] == "noul":
        return [answer["noul"]]
    return list(answer["probabilities"].values())
