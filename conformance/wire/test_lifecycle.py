"""Overload, clients that leave the queue, and the drain on SIGTERM."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from http.client import HTTPConnection

from serving import Serving
from system1_core.testing import Reply

# Long enough for what a test does meanwhile, also on a busy machine.
SECONDS = 3.0
QUESTION = {"wait": {"type": "noul", "instructions": "Done?"}}


def body(seconds: float) -> dict[str, object]:
    return {"state": {"seconds": seconds}, "questions": QUESTION}


def ask(server: Serving, seconds: float) -> Reply:
    return server.post("/v1/systemone", body(seconds))


def metric(server: Serving, name: str) -> float:
    """The sum of a metric over its labels."""
    lines = server.get("/metrics").body.decode().splitlines()
    values = [line.rsplit(" ", 1) for line in lines if line.startswith(name)]
    return sum(float(value) for text, value in values if text.split("{")[0] == name)


def wait_for(claim: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not claim():
        assert time.monotonic() < deadline, "it did not come true"
        time.sleep(0.02)


def in_flight(server: Serving, count: int) -> None:
    wait_for(lambda: metric(server, "system1_requests_in_flight") >= count)


def test_a_drain_answers_what_is_in_flight_refuses_the_rest_and_exits_0(slow: Serving) -> None:
    with ThreadPoolExecutor(2) as pool:
        running: list[Future[Reply]] = [pool.submit(ask, slow, SECONDS / 2) for _ in range(2)]
        in_flight(slow, 2)
        slow.terminate()
        # Until then a request would still be admitted.
        wait_for(lambda: slow.get("/health").json["status"] == "draining")
        refused = ask(slow, 0)
        assert not running[1].done()
        assert refused.status == 503
        assert refused.json["detail"]["error_type"] == "unavailable"
        assert refused.headers["retry-after"]
        assert [one.result().status for one in running] == [200, 200]
    assert slow.wait() == 0


def test_an_idle_server_exits_0_on_sigterm(slow: Serving) -> None:
    slow.terminate()
    assert slow.wait() == 0


def test_a_full_queue_refuses_at_once_with_529_and_a_time_to_come_back(slow: Serving) -> None:
    with ThreadPoolExecutor(4) as pool:
        waiting = [pool.submit(ask, slow, SECONDS / 4) for _ in range(4)]
        in_flight(slow, 4)
        wait_for(lambda: ask(slow, 0).status == 529)
        refused = ask(slow, 0)
        assert refused.status == 529
        assert refused.json["detail"]["error_type"] == "overloaded_error"
        assert refused.headers["retry-after"]
        assert not any(one.done() and one.result().status != 200 for one in waiting)
        assert [one.result().status for one in waiting] == [200] * 4


def test_a_client_that_leaves_the_queue_never_runs(slow: Serving) -> None:
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(ask, slow, SECONDS)
        in_flight(slow, 1)
        leaving = HTTPConnection("127.0.0.1", slow.port, timeout=30)
        leaving.request("POST", "/v1/systemone", json.dumps(body(SECONDS)))
        in_flight(slow, 2)
        leaving.close()
        wait_for(lambda: metric(slow, "system1_requests_in_flight") == 1)
        assert running.result().status == 200
    assert ask(slow, 0).status == 200
    assert metric(slow, "system1_batch_prompts_count") == 2
