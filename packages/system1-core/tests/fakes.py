"""Fakes of ten lines, shared by the tests."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from system1_core import (
    Answer,
    ChoiceAnswer,
    Executor,
    Load,
    ModelFamily,
    NoulAnswer,
    Prepared,
    Processor,
    Prompt,
    Request,
    ScoreAnswer,
    hookimpl,
    json_text,
    one_hot,
)
from system1_core.plugins import Plugins, collect


class FirstOption(Processor):
    """One prompt a question, certainty for the first option."""

    def prepare(self, request: Request) -> Prepared:
        token_ids = list(json_text(request.state).encode())
        return Prepared([Prompt(token_ids) for _ in request.questions], request.questions)

    def finish(self, context: Any, outputs: Sequence[Any]) -> list[Answer]:
        return [_answer(question, index) for question, index in zip(context, outputs, strict=True)]


def _answer(question: Any, index: int) -> Answer:
    probabilities = one_hot(question.options, index)
    if question.type == "choice":
        return ChoiceAnswer(probabilities=probabilities)
    if question.type == "score":
        return ScoreAnswer(probabilities=list(probabilities.values()))
    return NoulAnswer(probability=probabilities["true"])


class Zeros(Executor):
    """Answers 0 for every prompt; `hold` keeps a batch until it is set, `error` fails it."""

    def __init__(self) -> None:
        self.batches: list[int] = []
        self.threads: set[int] = set()
        self.hold = threading.Event()
        self.hold.set()
        self.error: Exception | None = None
        self.closed = False

    def execute(self, prompts: Sequence[Prompt]) -> list[int]:
        self.threads.add(threading.get_ident())
        self.batches.append(len(prompts))
        self.hold.wait(20)
        if self.error is not None:
            raise self.error
        return [0 for _ in prompts]

    def warmup(self) -> None:
        self.threads.add(threading.get_ident())

    def close(self) -> None:
        self.threads.add(threading.get_ident())
        self.closed = True


EXAMPLE = {"state": "x", "questions": {"q": {"type": "noul", "instructions": "Is it?"}}}


def family(name: str = "zeros", executor: Executor | None = None, **changes: Any) -> ModelFamily:
    settings: dict[str, Any] = {
        "load_processor": lambda load: FirstOption(),
        "load_executor": lambda load: executor or Zeros(),
        "example": EXAMPLE,
        "default_rank": 1,
    }
    return ModelFamily(name=name, **(settings | changes))


@dataclass
class FakePlugin:
    """A plugin module with models only."""

    families: list[ModelFamily]

    @hookimpl
    def system1_register_models(self) -> list[ModelFamily]:
        return self.families


def plugins(*families: ModelFamily, more: Sequence[Any] = ()) -> Plugins:
    """Core's own plugin, the families, and (distribution, loader) pairs."""
    from system1_core import builtin

    sources: list[tuple[str, str, str, Callable[[], object]]] = [
        ("system1-core", "0.3.0", "builtin", lambda: builtin),
        ("fakes", "1.0", "fakes", lambda: FakePlugin(list(families))),
    ]
    sources += [(name, "1.0", name, load) for name, load in more]
    return collect(sources)


def load(**changes: Any) -> Load:
    return Load(family="zeros", **changes)


async def settle(turns: int = 20) -> None:
    for _ in range(turns):
        await asyncio.sleep(0.001)
