"""Many clients at once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from questions import BODY, QUESTIONS, body, distance

from serving import Serving


def test_thirty_two_clients_at_once_get_what_each_gets_alone(server: Serving) -> None:
    bodies = [body(number) for number in range(64)]
    alone = [server.ask(one) for one in bodies]
    with ThreadPoolExecutor(32) as pool:
        together = list(pool.map(server.ask, bodies))
    assert max(map(distance, alone, together)) <= 1e-5


def test_bad_requests_among_good_ones_change_nothing(server: Serving) -> None:
    bad = {**BODY, "questions": {**QUESTIONS, "bad": {"type": "choice", "criteria": {}}}}
    bodies = [body(number) for number in range(16)]
    alone = [server.ask(one) for one in bodies]
    with ThreadPoolExecutor(32) as pool:
        refused = [pool.submit(server.post, "/v1/systemone", bad) for _ in range(16)]
        together = list(pool.map(server.ask, bodies))
    assert {one.result().status for one in refused} == {422}
    assert max(map(distance, alone, together)) <= 1e-5


def test_the_batch_route_equals_single_requests(server: Serving) -> None:
    states = [body(number)["state"] for number in range(8)]
    reply = server.post("/v1/systemone/batch", {"states": states, "questions": QUESTIONS})
    assert reply.status == 200, reply.body
    alone = [server.ask({"state": state, "questions": QUESTIONS}) for state in states]
    results = [result["answers"] for result in reply.json["results"]]
    assert max(map(distance, alone, results)) <= 1e-5
