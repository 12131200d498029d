"""The one thread that loads, warms, runs and closes an executor."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any

_log = logging.getLogger(__name__)
# So long without a call and the thread counts as idle.
_IDLE_AFTER_S = 0.05
# Without a future nobody waits for the result.
_Call = tuple[asyncio.Future[Any] | None, Callable[..., Any], tuple[Any, ...]]


class ExecutorThread:
    """Runs calls in order and hands their results to the event loop that asked.

    A ThreadPoolExecutor of one worker does the same with two futures a call, which costs 12 us
    more (of 60, measured with uvloop on two virtual cores).
    """

    def __init__(self, name: str) -> None:
        self._calls: SimpleQueue[_Call | None] = SimpleQueue()
        self._idle: Callable[[], bool] | None = None
        # A daemon: a device that hangs must not keep the process from ending.
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def call(self, call: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:
        """The result of `call(*args)`; cancelling it drops the result, the call still runs."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._calls.put((future, call, args))
        return future

    def when_idle(self, idle: Callable[[], bool] | None) -> None:
        """Call `idle` on the thread while it has no other call, until it returns False; again
        after the next call."""
        self._idle = idle
        # The thread may be waiting for a call already, with nothing to do in between.
        self._calls.put((None, lambda: None, ()))

    def close(self) -> None:
        """End the thread after the calls it has; does not wait."""
        self._calls.put(None)

    def _run(self) -> None:
        while (item := self._next_call()) is not None:
            future, call, args = item
            try:
                result, error = call(*args), None
            except BaseException as raised:
                result, error = None, raised
            # The loop may have been closed meanwhile: then nobody waits.
            with suppress(RuntimeError):
                if future is not None:
                    future.get_loop().call_soon_threadsafe(_settle, future, result, error)
            del item, future, call, args, result, error

    def _next_call(self) -> _Call | None:
        """The next call; until it comes, idle work."""
        # Read once a turn: another thread may take it away.
        while (idle := self._idle) is not None:
            try:
                return self._calls.get(timeout=_IDLE_AFTER_S)
            except Empty:
                if not self._run_idle(idle):
                    break
        return self._calls.get()

    def _run_idle(self, idle: Callable[[], bool]) -> bool:
        try:
            return idle()
        except Exception:
            _log.exception("idle work failed; it is not tried again")
            self._idle = None
            return False


def _settle(future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(result)
    elif isinstance(error, StopIteration):  # a future cannot carry it
        future.set_exception(RuntimeError("the executor raised StopIteration"))
    else:
        future.set_exception(error)
