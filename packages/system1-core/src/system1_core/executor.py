"""The device side of a family."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import Any

from system1_core.processor import Prompt


class Executor:
    """Runs batches of prompts.

    A request whose first round takes more than `max_request_tokens` is refused with 413.

    One thread loads, warms, runs and closes an executor, and device work is done when `execute`
    returns. Where the work is I/O, write `async def execute`: it then runs on the event loop, up
    to `max_concurrent_batches` at a time.
    """

    max_batch_prompts: int = 64
    max_batch_tokens: int = 16_384
    max_concurrent_batches: int = 1
    max_request_tokens: int = 1_048_576

    def execute(self, prompts: Sequence[Prompt]) -> Sequence[Any] | Awaitable[Sequence[Any]]:
        """One output for each prompt, in order; raises `DeviceLost` if nothing runs any more."""
        raise NotImplementedError

    def cost(self, batch: Sequence[Prompt], prompt: Prompt) -> int:
        """Tokens that `prompt` adds to `batch`; override it where prompts share or pad."""
        return prompt.num_tokens

    def warmup(self) -> None:
        """Called once after loading, before the example request goes through the full path."""

    def idle(self) -> bool:
        """Called on the executor's thread while no batch waits, again as long as it returns True.

        For work that makes later batches faster. Keep each call short: a batch that arrives
        meanwhile waits for it.
        """
        return False

    def close(self) -> None:
        """Free the device."""
