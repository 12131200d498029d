"""The family `slow`: state {"seconds": 0.5} takes half a second; every noul is 1."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from system1_core import (
    Answer,
    Executor,
    ModelFamily,
    NoulAnswer,
    Prepared,
    Processor,
    Prompt,
    Request,
    hookimpl,
)


@dataclass(frozen=True, slots=True)
class SlowPrompt(Prompt):
    """One wait."""

    seconds: float


class SlowProcessor(Processor):
    """One prompt a question."""

    def prepare(self, request: Request) -> Prepared:
        state = request.state
        seconds = state.get("seconds", 0.0) if isinstance(state, dict) else 0.0
        return Prepared([SlowPrompt([0], seconds) for _ in request.questions])

    def finish(self, context: Any, outputs: Sequence[Any]) -> list[Answer]:
        return [NoulAnswer(probability=1.0) for _ in outputs]


class SlowExecutor(Executor):
    """Waits; one prompt a batch, so that a queue forms."""

    max_batch_prompts = 1

    def execute(self, prompts: Sequence[Prompt]) -> list[None]:
        for prompt in prompts:
            assert isinstance(prompt, SlowPrompt)
            time.sleep(prompt.seconds)
        return [None for _ in prompts]


@hookimpl
def system1_register_models() -> list[ModelFamily]:
    """The one family."""
    return [
        ModelFamily(
            name="slow",
            load_processor=lambda load: SlowProcessor(),
            load_executor=lambda load: SlowExecutor(),
            question_types=("noul",),
        )
    ]
