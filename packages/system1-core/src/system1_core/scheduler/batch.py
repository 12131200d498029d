"""Batches across requests: first come first served, turns batch by batch, no waiting timer."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any

from system1_core.errors import DeadlineExceeded, InferenceFailed, ModelUnavailable, QueueFull
from system1_core.processor import Prompt
from system1_core.scheduler import ExecuteBatch, Scheduler, SchedulerLimits

_PENDING = object()


@dataclass(slots=True, eq=False)
class _Waiting:
    """One request in the queue: what it has not handed out yet, and what came back."""

    prompts: Sequence[Prompt]
    done: asyncio.Future[list[Any]]
    pending: deque[int] = field(init=False)
    outputs: list[Any] = field(init=False)
    missing: int = field(init=False)
    since: float = field(init=False)
    started: bool = False

    def __post_init__(self) -> None:
        self.pending = deque(range(len(self.prompts)))
        self.outputs = [_PENDING] * len(self.prompts)
        self.missing = len(self.prompts)
        self.since = self.done.get_loop().time()

    def receive(self, index: int, output: Any) -> None:
        self.outputs[index] = output
        self.missing -= 1
        if self.missing == 0 and not self.done.done():
            self.done.set_result(self.outputs)

    def expire_at(self, deadline: float) -> asyncio.TimerHandle:
        """Fail at `deadline`, a time of the loop's clock."""
        error = DeadlineExceeded("the request's time ran out before its answer")
        return self.done.get_loop().call_at(deadline, self.fail, error)

    def fail(self, error: BaseException) -> None:
        if not self.done.done():
            self.done.set_exception(error)


class _Batch:
    """A batch being filled: prompts of one key, up to the executor's limits."""

    def __init__(self, key: Hashable, limits: SchedulerLimits) -> None:
        self.slots: list[tuple[_Waiting, int]] = []
        self.prompts: list[Prompt] = []
        self.full = False
        self._key = key
        self._limits = limits
        self._tokens = 0

    def take_from(self, waiting: _Waiting) -> bool:
        """Move what fits of a request's pending prompts into the batch; whether any did."""
        other_keys: list[int] = []
        before = len(self.slots)
        while waiting.pending and not self.full:
            index = waiting.pending[0]
            prompt = waiting.prompts[index]
            if prompt.batch_key != self._key:
                other_keys.append(waiting.pending.popleft())
            elif self._fits(prompt):
                self.slots.append((waiting, waiting.pending.popleft()))
        waiting.pending.extendleft(reversed(other_keys))
        return len(self.slots) > before

    def _fits(self, prompt: Prompt) -> bool:
        """Add `prompt`, or close the batch: a later, smaller one must not overtake it."""
        cost = self._limits.cost(self.prompts, prompt)
        if self.prompts and self._tokens + cost > self._limits.max_batch_tokens:
            self.full = True
            return False
        self.prompts.append(prompt)
        self._tokens += cost
        self.full = len(self.prompts) >= self._limits.max_batch_prompts
        return True


class BatchScheduler(Scheduler):
    """Fills each batch across the waiting requests and sends it when the executor is free."""

    def __init__(self, execute: ExecuteBatch, limits: SchedulerLimits) -> None:
        self._execute = execute
        self._limits = limits
        self._turns: deque[_Waiting] = deque()
        self._queued_prompts = 0
        self._queued_requests = 0
        self._running: set[asyncio.Task[None]] = set()
        self._closed = False

    @property
    def queued_requests(self) -> int:
        return self._queued_requests

    async def run(self, prompts: Sequence[Prompt], deadline: float | None) -> list[Any]:
        if not prompts:
            return []
        self._admit(len(prompts))
        waiting = _Waiting(prompts, asyncio.get_running_loop().create_future())
        self._turns.append(waiting)
        self._queued_requests += 1
        expiry = None if deadline is None else waiting.expire_at(deadline)
        try:
            self._dispatch()
            return await waiting.done
        finally:
            if expiry is not None:
                expiry.cancel()
            self._queued_requests -= 1
            self._drop(waiting)

    def _admit(self, count: int) -> None:
        if self._closed:
            raise ModelUnavailable("the model is shutting down")
        limits = self._limits
        if self._queued_requests >= limits.max_queued_requests:
            raise QueueFull(
                f"{self._queued_requests} requests are waiting, limit {limits.max_queued_requests}"
            )
        # A request larger than the whole queue enters when it is empty: it could never later.
        if self._queued_prompts and self._queued_prompts + count > limits.max_queued_prompts:
            raise QueueFull(
                f"{self._queued_prompts} prompts are waiting and this request has {count}, "
                f"limit {limits.max_queued_prompts}"
            )
        self._queued_prompts += count

    def _drop(self, waiting: _Waiting) -> None:
        """Take what was not dispatched out of the queue; it never runs."""
        if waiting.pending:
            self._queued_prompts -= len(waiting.pending)
            waiting.pending.clear()
            self._turns.remove(waiting)

    def _dispatch(self) -> None:
        """Send batches while a permit is free and someone waits."""
        while self._turns and len(self._running) < self._limits.max_concurrent_batches:
            task = asyncio.get_running_loop().create_task(self._run_batch(self._fill()))
            self._running.add(task)
            task.add_done_callback(self._release)

    def _release(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        if not self._closed:
            self._dispatch()

    def _fill(self) -> _Batch:
        """The next batch: whose turn it is first, then the others in order."""
        first = self._turns[0]
        batch = _Batch(first.prompts[first.pending[0]].batch_key, self._limits)
        served: list[_Waiting] = []
        passed_over: list[_Waiting] = []
        while self._turns and not batch.full:
            waiting = self._turns.popleft()
            took = batch.take_from(waiting)
            if took and not waiting.started:
                waiting.started = True
                self._limits.observe_wait_s(asyncio.get_running_loop().time() - waiting.since)
            if waiting.pending:
                (served if took else passed_over).append(waiting)
        # Who was served goes to the end of the line; who was passed over keeps the place.
        self._turns.extendleft(reversed(passed_over))
        self._turns.extend(served)
        self._queued_prompts -= len(batch.slots)
        return batch

    async def _run_batch(self, batch: _Batch) -> None:
        try:
            outputs = await self._execute(batch.prompts)
            if len(outputs) != len(batch.slots):
                raise InferenceFailed(
                    f"the executor gave {len(outputs)} outputs for {len(batch.slots)} prompts"
                )
        except Exception as error:
            for waiting, _ in batch.slots:
                self._drop(waiting)
                waiting.fail(error)
            return
        for (waiting, index), output in zip(batch.slots, outputs, strict=True):
            waiting.receive(index, output)

    async def close(self) -> None:
        self._closed = True
        for waiting in list(self._turns):
            self._drop(waiting)
            waiting.fail(ModelUnavailable("the model is shutting down"))
        if self._running:
            await asyncio.gather(*self._running, return_exceptions=True)
