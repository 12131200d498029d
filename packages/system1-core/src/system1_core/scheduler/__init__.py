"""When each prompt runs, and beside which others."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from system1_core.processor import Prompt

ExecuteBatch = Callable[[Sequence[Prompt]], Awaitable[Sequence[Any]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerLimits:
    """What a batch and the queue may hold.

    `cost` is the executor's; a batch closes before the prompt that would take it over
    `max_batch_tokens`, but a prompt that is over it alone still runs, alone. `observe_wait_s` is
    told how long each request waited before its first prompt ran.
    """

    cost: Callable[[Sequence[Prompt], Prompt], int]
    max_batch_prompts: int = 64
    max_batch_tokens: int = 16_384
    max_concurrent_batches: int = 1
    max_queued_prompts: int = 8_192
    max_queued_requests: int = 1_024
    observe_wait_s: Callable[[float], None] = lambda waited_s: None


class Scheduler:
    """Hands prompts to the executor; knows `batch_key` and `cost` only. Lives on the event loop."""

    async def run(self, prompts: Sequence[Prompt], deadline: float | None) -> list[Any]:
        """Outputs in the order of `prompts`.

        `deadline` is a time of the loop's clock. Raises `QueueFull` at admission,
        `DeadlineExceeded` for a request that did not finish in time. Cancelling drops what has not
        been dispatched.
        """
        raise NotImplementedError

    @property
    def queued_requests(self) -> int:
        """Requests admitted and not finished."""
        raise NotImplementedError

    async def close(self) -> None:
        """Stop; whoever still waits gets `ModelUnavailable`."""
