"""One request at a time, first come first served: the reference for parity."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from system1_core.errors import DeadlineExceeded, ModelUnavailable, QueueFull
from system1_core.processor import Prompt
from system1_core.scheduler import ExecuteBatch, Scheduler, SchedulerLimits


class SerialScheduler(Scheduler):
    """Runs a request's prompts one by one, in order, and nothing of another request between."""

    def __init__(self, execute: ExecuteBatch, limits: SchedulerLimits) -> None:
        self._execute = execute
        self._limits = limits
        self._turn = asyncio.Lock()
        self._queued = 0
        self._closed = False

    @property
    def queued_requests(self) -> int:
        return self._queued

    async def run(self, prompts: Sequence[Prompt], deadline: float | None) -> list[Any]:
        if self._closed:
            raise ModelUnavailable("the model is shutting down")
        if self._queued >= self._limits.max_queued_requests:
            raise QueueFull(
                f"{self._queued} requests are waiting, limit {self._limits.max_queued_requests}"
            )
        self._queued += 1
        try:
            async with asyncio.timeout_at(deadline):
                return await self._run_in_turn(prompts)
        except TimeoutError:
            raise DeadlineExceeded("the request's time ran out before its answer") from None
        finally:
            self._queued -= 1

    async def _run_in_turn(self, prompts: Sequence[Prompt]) -> list[Any]:
        clock = asyncio.get_running_loop().time
        since = clock()
        await self._turn.acquire()
        self._limits.observe_wait_s(clock() - since)
        batch: asyncio.Future[Sequence[Any]] | None = None
        outputs: list[Any] = []
        try:
            for prompt in prompts:
                if self._closed:
                    raise ModelUnavailable("the model is shutting down")
                batch = asyncio.ensure_future(self._execute([prompt]))
                outputs.extend(await asyncio.shield(batch))
            return outputs
        finally:
            # A batch that runs keeps the turn to its end, even when its waiter has gone.
            if batch is None or batch.done():
                self._turn.release()
            else:
                batch.add_done_callback(self._release_after)

    def _release_after(self, batch: asyncio.Future[Any]) -> None:
        self._turn.release()
        if not batch.cancelled():
            batch.exception()  # read it: the waiter that would have has gone

    async def close(self) -> None:
        self._closed = True
        async with self._turn:
            pass
