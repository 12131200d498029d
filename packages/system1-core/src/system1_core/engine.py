"""One served family: its parts, its thread, and the short loop that answers a request."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any

from system1_core.answers import Result, fault
from system1_core.errors import (
    DeadlineExceeded,
    DeviceLost,
    InferenceFailed,
    InvalidRequest,
    ModelUnavailable,
    System1Error,
    TooLarge,
)
from system1_core.executor import Executor
from system1_core.executor_thread import ExecutorThread
from system1_core.family import Load, ModelFamily, SchedulerKind
from system1_core.metrics import EngineMetrics
from system1_core.processor import Prepared, Processor, Prompt
from system1_core.request import Request
from system1_core.scheduler import Scheduler, SchedulerLimits
from system1_core.wire.dialect import Dialect

logger = logging.getLogger("system1")

# Preparing or finishing this much takes about a millisecond: more would hold up the event loop.
INLINE_BYTES = 16 * 1024
INLINE_OPTIONS = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineParts:
    """What an engine is built from, all resolved at start."""

    family: ModelFamily
    load: Load
    load_processor: Callable[[Load], Processor]
    load_executor: Callable[[Load], Executor]
    scheduler: SchedulerKind
    metrics: EngineMetrics
    max_queued_requests: int = 1_024
    max_queued_prompts: int = 8_192


class Engine:
    """Loads the parts of one family and answers requests; lives on one event loop.

    `state` is "loading", "ok", "failed" or "closed"; `reason` says why it failed.
    """

    processor: Processor
    executor: Executor
    scheduler: Scheduler

    def __init__(self, parts: EngineParts) -> None:
        self._parts = parts
        self.family = parts.family
        self.name = parts.family.name
        self.backend = parts.load.backend
        self.dtype = parts.load.dtype
        self.state = "loading"
        self.reason = ""
        self.reference: Dialect | None = None
        # One thread loads, warms, runs and closes the executor: devices bind to threads.
        self._thread = ExecutorThread(f"system1-{self.name}")

    @property
    def names(self) -> tuple[str, ...]:
        """The family's name, its aliases, and what its processor found when it was loaded."""
        found = self.processor.names if hasattr(self, "processor") else ()
        return tuple(dict.fromkeys((self.name, *self.family.aliases, *found)))

    async def start(self, example: Request | None) -> None:
        """Load, warm up, and answer `example` through the full path."""
        try:
            await self._thread.call(self._load)
            if example is not None:
                await self.answer(example)
        except Exception as error:
            if hasattr(self, "executor"):
                await self._fail(str(error))
            self.state, self.reason = "failed", str(error)
            raise
        self.state = "ok"
        if type(self.executor).idle is not Executor.idle:
            self._thread.when_idle(self.executor.idle)

    def _load(self) -> None:
        parts = self._parts
        self.processor = parts.load_processor(parts.load)
        self.executor = executor = parts.load_executor(parts.load)
        executor.warmup()
        if parts.family.reference is not None:
            self.reference = parts.family.reference(parts.load.options)
        self.scheduler = parts.scheduler.make(
            self._execute,
            SchedulerLimits(
                cost=executor.cost,
                max_batch_prompts=executor.max_batch_prompts,
                max_batch_tokens=executor.max_batch_tokens,
                max_concurrent_batches=executor.max_concurrent_batches,
                max_queued_prompts=parts.max_queued_prompts,
                max_queued_requests=parts.max_queued_requests,
                observe_wait_s=parts.metrics.queue_time,
            ),
        )
        self._is_async = inspect.iscoroutinefunction(executor.execute)

    async def answer(self, request: Request, deadline: float | None = None) -> Result:
        """Answers to one request; `deadline` is a time of the event loop's clock."""
        started = perf_counter()
        self._check(request)
        prepared = await self._prepare(request, deadline)
        return await self._finish(request, prepared, deadline, started)

    async def answer_batch(
        self, requests: Sequence[Request], deadline: float | None = None
    ) -> list[Result]:
        """Answers to several requests, all checked before the first one runs."""
        started = perf_counter()
        for request in requests:
            self._check(request)
        prepared = [await self._prepare(request, deadline) for request in requests]
        tasks = [
            asyncio.create_task(self._finish(request, one, deadline, started))
            for request, one in zip(requests, prepared, strict=True)
        ]
        try:
            return list(await asyncio.gather(*tasks))
        except BaseException:
            for task in tasks:
                task.cancel()
            raise

    def _check(self, request: Request) -> None:
        if self.state in ("failed", "closed"):
            raise ModelUnavailable(f"model {self.name!r} is {self.state}", retry_after_s=10)
        if request.images and not self.family.accepts_images:
            raise InvalidRequest.at(
                ("assets",),
                f"model {self.name!r} reads text only and the request has "
                f"{len(request.images)} image(s): leave them out or use a model that reads images",
            )
        types = self.family.question_types
        for question in request.questions:
            if question.type not in types:
                raise question.invalid(
                    f"model {self.name!r} answers {', '.join(types)} only", type="unsupported_type"
                )

    async def _prepare(self, request: Request, deadline: float | None) -> Prepared:
        prepared: Prepared = await _off_loop_if_large(
            request, deadline, self.processor.prepare, request
        )
        tokens = sum(prompt.num_tokens for prompt in prepared.prompts)
        if tokens > self.executor.max_request_tokens:
            raise TooLarge(
                f"the request takes {tokens} tokens, limit {self.executor.max_request_tokens}: "
                "send fewer or shorter questions and options"
            )
        return prepared

    async def _finish(
        self, request: Request, prepared: Prepared, deadline: float | None, started: float
    ) -> Result:
        """Run and finish, round after round, until the processor gives answers."""
        tokens = 0
        ready = perf_counter()
        step: Result | list[Any] | Prepared = prepared
        while isinstance(step, Prepared):
            outputs = await self.scheduler.run(step.prompts, deadline)
            tokens += sum(prompt.num_tokens for prompt in step.prompts)
            step = await _off_loop_if_large(
                request, deadline, self.processor.finish, step.context, outputs
            )
        result = step if isinstance(step, Result) else Result(answers=step, input_tokens=tokens)
        self._check_answers(request, result)
        done = perf_counter()
        timing = {
            "prepare_ms": round((ready - started) * 1e3, 3),
            "model_ms": round((done - ready) * 1e3, 3),
        }
        return replace(result, extra={**result.extra, "x_timing": timing})

    def _check_answers(self, request: Request, result: Result) -> None:
        if len(result.answers) != len(request.questions):
            count = len(result.answers)
            logger.error("%s: %d answers to %d questions", self.name, count, len(request.questions))
            raise InferenceFailed
        for question, answer in zip(request.questions, result.answers, strict=True):
            if problem := fault(question, answer):
                logger.error("%s: %s", self.name, problem)
                raise InferenceFailed
        self._parts.metrics.answered(request, result)

    async def _execute(self, prompts: Sequence[Prompt]) -> Sequence[Any]:
        """One batch on the executor, its errors turned into what a client may see."""
        started = perf_counter()
        try:
            if self._is_async:
                outputs: Sequence[Any] = await self.executor.execute(prompts)  # type: ignore[misc]
            else:
                outputs = await self._thread.call(self.executor.execute, prompts)
        except System1Error:
            raise
        except DeviceLost as error:
            logger.exception("%s: the device is lost", self.name)
            await self._fail(f"the device is lost: {error}")
            raise ModelUnavailable(f"model {self.name!r} lost its device") from None
        except Exception:
            logger.exception("%s: a batch of %d prompts failed", self.name, len(prompts))
            raise InferenceFailed from None
        self._parts.metrics.ran_batch(prompts, perf_counter() - started)
        return outputs

    async def _fail(self, reason: str) -> None:
        self.state, self.reason = "failed", reason
        try:
            self._thread.when_idle(None)
            await self._thread.call(self.executor.close)
        except Exception:
            logger.exception("%s: closing after a failure", self.name)

    async def close(self) -> None:
        """Finish the running batches, then close the parts in the executor's thread."""
        was, self.state = self.state, "closed"
        if hasattr(self, "scheduler"):
            await self.scheduler.close()
        # What failed was closed when it did.
        if hasattr(self, "executor") and was != "failed":
            self._thread.when_idle(None)
            await self._thread.call(self.executor.close)
        if hasattr(self, "processor"):
            self.processor.close()
        self._thread.close()


async def _off_loop_if_large(
    request: Request, deadline: float | None, call: Callable[..., Any], *args: Any
) -> Any:
    """`call(*args)`, in a worker thread when the request is large; 504 when its time runs out."""
    num_options = sum(len(question.options) for question in request.questions)
    is_small = request.num_bytes <= INLINE_BYTES and num_options <= INLINE_OPTIONS
    # A few kilobytes of PNG may decode to millions of pixels.
    if is_small and not request.images:
        return call(*args)
    try:
        async with asyncio.timeout_at(deadline):
            return await asyncio.to_thread(call, *args)
    except TimeoutError:
        raise DeadlineExceeded("the request's time ran out before its answer") from None
