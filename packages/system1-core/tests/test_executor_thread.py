"""The executor's thread: calls in order, idle work only between them."""

import asyncio
import threading

from system1_core.executor_thread import ExecutorThread


async def test_idle_work_runs_until_it_says_that_nothing_is_left():
    thread, done = ExecutorThread("test"), threading.Event()
    runs = []

    def idle():
        runs.append(threading.current_thread().name)
        if len(runs) == 3:
            done.set()
        return len(runs) < 3

    thread.when_idle(idle)
    assert await asyncio.to_thread(done.wait, 10)
    await asyncio.sleep(0.2)
    assert runs == ["test"] * 3
    thread.close()


async def test_idle_work_is_asked_for_again_after_a_call():
    thread, runs = ExecutorThread("test"), []
    done = [threading.Event(), threading.Event()]

    def idle():
        done[len(runs)].set()
        runs.append(1)
        return False

    thread.when_idle(idle)
    assert await asyncio.to_thread(done[0].wait, 10)
    await thread.call(lambda: None)
    assert await asyncio.to_thread(done[1].wait, 10)
    thread.when_idle(None)
    thread.close()


async def test_a_call_comes_before_more_idle_work():
    thread, entered, released = ExecutorThread("test"), threading.Event(), threading.Event()
    order = []

    def idle():
        order.append("idle")
        entered.set()
        released.wait(10)
        return True

    thread.when_idle(idle)
    assert await asyncio.to_thread(entered.wait, 10)
    call = thread.call(order.append, "call")
    released.set()
    await call
    assert order[:2] == ["idle", "call"]
    thread.when_idle(None)
    thread.close()


async def test_idle_work_that_fails_is_not_tried_again_and_calls_go_on(caplog):
    thread, runs = ExecutorThread("test"), []

    def idle():
        runs.append(1)
        raise ValueError("broken")

    thread.when_idle(idle)
    await thread.call(lambda: None)
    await asyncio.sleep(0.3)
    assert await thread.call(lambda: "still here") == "still here"
    await asyncio.sleep(0.2)
    assert runs == [1]
    assert "idle work failed" in caplog.text
    thread.close()
