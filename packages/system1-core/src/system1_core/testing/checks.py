"""What every model family must do, whatever it computes."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from system1_core.config import ModelChoice, ServeConfig
from system1_core.engine import Engine
from system1_core.engines import build, example_request
from system1_core.metrics import Metrics
from system1_core.plugins import discover
from system1_core.wire.dialect import Body, RequestLimits
from system1_core.wire.systemone import SystemOne

NUM_NEIGHBOURS = 8


def check_family(name: str, *, tolerance: float = 1e-5, **settings: Any) -> None:
    """Serve an installed family in this process and hold it to what the protocol asks of all.

    `name` is NAME or NAME=FOLDER, `settings` are fields of ServeConfig. Asserts that the example
    request is answered, and that renaming ids, asking questions alone, their order, and requests
    beside it in a batch move no number by more than `tolerance`.
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
    state, questions = example["state"], example["questions"]
    alone = await ask(engine, state, questions)
    assert list(alone) == list(questions), "one answer for each question, in order"
    for name, question in questions.items():
        single = await ask(engine, state, {name: question})
        assert distance(single[name], alone[name]) <= tolerance, f"{name}: neighbours changed it"
    renamed = await ask(engine, state, {f"other {name}": one for name, one in questions.items()})
    backwards = await ask(engine, state, dict(reversed(questions.items())))
    for name in questions:
        assert distance(renamed[f"other {name}"], alone[name]) <= tolerance, "an id changed it"
        assert distance(backwards[name], alone[name]) <= tolerance, "the order changed it"
    crowd = await asyncio.gather(*(ask(engine, state, questions) for _ in range(NUM_NEIGHBOURS)))
    for answers in crowd:
        for name in questions:
            assert distance(answers[name], alone[name]) <= tolerance, "a batch changed it"


async def ask(engine: Engine, state: Any, questions: Mapping[str, Any]) -> dict[str, Any]:
    """The protocol's answers of a started engine, by question id."""
    dialect = SystemOne()
    body = Body(json={"state": state, "questions": questions})
    request = dialect.parse(body, RequestLimits())
    result = await engine.answer(request)
    answers: dict[str, Any] = dialect.render(request, result, engine.name)["answers"]
    return answers


def distance(one: Mapping[str, Any], other: Mapping[str, Any]) -> float:
    """The largest difference between two answers' probabilities."""
    return max(abs(a - b) for a, b in zip(_numbers(one), _numbers(other), strict=True))


def _numbers(answer: Mapping[str, Any]) -> Sequence[float]:
    if answer["type"] == "noul":
        return [answer["noul"]]
    return list(answer["probabilities"].values())
