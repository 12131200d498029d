"""The server over real connections: routes, keys, headers, errors, overload, draining."""

from __future__ import annotations

import json
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from typing import Any

import pytest
from fakes import Zeros, family, plugins

import system1_core.server as server_module
from system1_core.testing import TestServer, serve
from system1_core.wire.dialect import RequestLimits
from system1_core.wire.transport import TransportLimits

BODY = {
    "model": "jev-latest",
    "state": "The coin lies on the table.",
    "questions": {
        "side": {"type": "choice", "criteria": {"heads": None, "tails": None}},
        "worn": {"type": "score", "criteria": ["new", "used"]},
        "fair": {"type": "noul", "instructions": "Is it fair?"},
    },
}
KEY = {"Authorization": "Bearer k3y"}


@pytest.fixture(scope="module")
def server():
    with serve("zeros", plugins=plugins(family(aliases=("nil",)))) as running:
        yield running


@pytest.fixture(scope="module")
def guarded():
    with serve("zeros", plugins=plugins(family()), keys=("other", "k3y")) as running:
        yield running


def test_a_request_is_answered(server):
    reply = server.post("/v1/systemone", BODY)
    assert reply.status == 200
    assert reply.headers["content-type"] == "application/json"
    assert reply.json["model"] == "zeros"
    assert reply.json["usage"] == {"input_tokens": 81, "output_tokens": 0}
    assert reply.json["answers"] == {
        "side": {
            "type": "choice",
            "choice": "heads",
            "probabilities": {"heads": 1.0, "tails": 0.0},
            "confidence": 1.0,
        },
        "worn": {
            "type": "score",
            "score": 0.0,
            "legend": {"0": "new", "1": "used"},
            "probabilities": {"0": 1.0, "1": 0.0},
            "confidence": 1.0,
        },
        "fair": {"type": "noul", "noul": 0.0},
    }


def test_extensions_begin_with_x(server):
    reply = server.post("/v1/systemone", BODY)
    assert set(reply.json) - {"model", "answers", "usage"} == {"x_timing"}


def test_the_batch_route_answers_every_state_in_order(server):
    body = {"states": ["a", {"b": 1}, ["c"]], "questions": BODY["questions"]}
    reply = server.post("/v1/systemone/batch", body)
    assert reply.status == 200
    assert [one["usage"]["input_tokens"] for one in reply.json["results"]] == [3, 24, 15]
    assert reply.json["total_usage"] == {"input_tokens": 42, "output_tokens": 0}


def test_a_batch_that_asks_for_too_much_is_refused_whole(server):
    criteria = {str(index): None for index in range(255)}
    body = {
        "states": [str(index) for index in range(64)],
        "questions": {"q": {"type": "choice", "criteria": criteria}},
    }
    reply = server.post("/v1/systemone/batch", body)
    assert reply.status == 422
    assert "16320 options in all, limit 8192" in reply.json["detail"][0]["msg"]


def test_errors_do_not_echo_megabytes(server):
    body = {"state": "x", "questions": {"i" * 1_000_000: {"type": "zzz"}}}
    reply = server.post("/v1/systemone", body)
    assert reply.status == 422
    assert len(reply.body) < 5_000


def test_openais_route_answers_in_its_shape(server):
    body = {
        "model": "zeros",
        "input": "x",
        "questions": [{"type": "predicate", "instructions": "Is it?"}],
    }
    reply = server.post("/v1/decisions", body)
    assert reply.status == 200
    assert reply.json["answers"] == [{"type": "predicate", "name": None, "probability": 0.0}]


@pytest.mark.parametrize("model", [None, "jev-latest", "zeros", "nil"])
def test_the_model_may_be_absent_or_any_of_its_names(server, model):
    body = {**BODY, "model": model} if model else {k: v for k, v in BODY.items() if k != "model"}
    assert server.post("/v1/systemone", body).status == 200


def test_an_unknown_model_is_404_and_named(server):
    reply = server.post("/v1/systemone", {**BODY, "model": "gpt-9"})
    assert reply.status == 404
    assert reply.json["detail"]["error_type"] == "not_found_error"
    assert "gpt-9" in reply.json["detail"]["message"]


def test_the_models_are_listed_in_both_shapes(server):
    body = server.get("/v1/models").json
    assert [entry["name"] for entry in body["models"]] == ["jev-latest", "zeros", "nil"]
    assert [entry["id"] for entry in body["data"]] == ["jev-latest", "zeros", "nil"]
    assert all(isinstance(entry["release_date"], str) for entry in body["models"])


def test_health_tells_the_details_without_keys(server):
    reply = server.get("/health")
    assert (reply.status, reply.json["status"], reply.json["model"]) == (200, "ok", "zeros")
    assert reply.json["models"][0]["device"] == "cpu"


def test_metrics_count_what_was_asked(server):
    server.post("/v1/systemone", BODY)
    text = server.get("/metrics").body.decode()
    for line in (
        'system1_questions_total{model="zeros",type="choice"}',
        'system1_batch_prompts_bucket{le="4.0",model="zeros"}',
        'system1_queue_seconds_count{model="zeros"}',
        'system1_input_tokens_total{model="zeros"}',
        'system1_options_sum{model="zeros",type="score"}',
        'system1_answer_confidence_bucket{le="1.0",model="zeros",type="noul"}',
        'system1_requests_total{route="systemone",status="200"}',
    ):
        assert line in text


def test_metrics_count_errors_by_type(server):
    server.post("/v1/systemone", {**BODY, "model": "nope"})
    text = server.get("/metrics").body.decode()
    assert 'system1_errors_total{error_type="not_found_error",model=""}' in text


@pytest.mark.parametrize("path", ["/v1/systemone", "/health", "/v1/models", "/", "/nothing"])
def test_every_response_has_a_request_id(server, path):
    assert server.get(path).headers["x-typesafe-request-id"]


@pytest.mark.parametrize("header", ["x-typesafe-request-id", "X-Request-Id"])
def test_a_well_formed_request_id_is_echoed(server, header):
    reply = server.post("/v1/systemone", BODY, {header: "req-1.a:b"})
    assert reply.headers["x-typesafe-request-id"] == "req-1.a:b"


def test_a_malformed_request_id_is_replaced(server):
    reply = server.post("/v1/systemone", BODY, {"x-request-id": "a b" * 100})
    assert len(reply.headers["x-typesafe-request-id"]) == 32


def test_a_wrong_method_is_405_with_allow(server):
    reply = server.get("/v1/systemone")
    assert reply.status == 405
    assert reply.headers["allow"] == "POST"
    assert reply.json["detail"]["error_type"] == "method_not_allowed"


def test_an_unknown_path_is_404(server):
    reply = server.get("/nothing")
    assert reply.status == 404
    assert reply.json["detail"]["error_type"] == "not_found_error"


def test_the_content_type_is_not_judged(server):
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    assert server.post("/v1/systemone", BODY, form).status == 200


@pytest.mark.parametrize(
    "raw",
    [b"", b"{bad", b"\xff\xfe", b'"x"', b"[1]", b"null", b"[" * 100_000, b'{"state": NaN}'],
)
def test_a_body_that_is_no_request_is_422_with_a_detail_list(server, raw):
    reply = server.post("/v1/systemone", raw)
    assert reply.status == 422
    assert reply.json["detail"][0]["loc"][0] == "body"


def test_errors_of_openais_route_have_its_shape(server):
    reply = server.post("/v1/decisions", {"model": "nope", "input": "x", "questions": []})
    assert 400 <= reply.status < 500
    assert set(reply.json["error"]) == {"message", "type", "param", "code"}


def test_an_unknown_profile_is_422(server):
    reply = server.post("/v1/systemone", BODY, {"x-system1-profile": "nope"})
    assert reply.status == 422


def test_an_unsupported_encoding_is_415(server):
    reply = server.post("/v1/systemone", BODY, {"Content-Encoding": "br"})
    assert reply.status == 415


def test_the_pages_for_people_are_there(server):
    assert server.get("/").headers["content-type"].startswith("text/html")
    assert server.get("/docs").headers["content-type"].startswith("text/html")
    assert "/v1/systemone" in server.get("/openapi.json").json["paths"]


def test_a_key_is_ignored_when_none_is_asked(server):
    assert server.post("/v1/systemone", BODY, {"Authorization": "Bearer x"}).status == 200


@pytest.mark.parametrize("authorization", ["Bearer k3y", "Bearer other"])
def test_any_of_several_keys_opens(guarded, authorization):
    headers = {"Authorization": authorization}
    assert guarded.post("/v1/systemone", BODY, headers).status == 200
    assert guarded.get("/v1/models", headers).status == 200
    assert guarded.get("/metrics", headers).status == 200


@pytest.mark.parametrize("authorization", [None, "Bearer wrong", "bearer k3y", "k3y", "Bearer "])
def test_no_other_key_does(guarded, authorization):
    headers = {"Authorization": authorization} if authorization else {}
    for reply in (
        guarded.post("/v1/systemone", BODY, headers),
        guarded.get("/v1/models", headers),
        guarded.get("/metrics", headers),
    ):
        assert reply.status == 401
        assert reply.json["detail"]["error_type"] == "authentication_error"


def test_a_key_hides_the_details_of_health(guarded):
    assert guarded.get("/health").json == {"status": "ok"}
    assert guarded.get("/health", KEY).json["model"] == "zeros"


@pytest.mark.parametrize("path", ["/docs", "/openapi.json"])
def test_a_key_hides_the_description(guarded, path):
    assert guarded.get(path).status == 404


def test_a_root_path_serves_with_and_without_the_prefix():
    with serve("zeros", plugins=plugins(family()), root_path="/decide") as server:
        assert server.post("/decide/v1/systemone", BODY).status == 200
        assert server.post("/v1/systemone", BODY).status == 200


def test_cors_is_off_by_default(server):
    reply = server.post("/v1/systemone", BODY, {"Origin": "https://a.example"})
    assert "access-control-allow-origin" not in reply.headers


def test_cors_opens_for_the_named_origin():
    with serve("zeros", plugins=plugins(family()), cors_origins=["https://a.example"]) as server:
        reply = server.post("/v1/systemone", BODY, {"Origin": "https://a.example"})
        assert reply.headers["access-control-allow-origin"] == "https://a.example"


def test_a_slow_body_is_408():
    limits = TransportLimits(body_timeout_s=0.2)
    with serve("zeros", plugins=plugins(family()), transport=limits) as server:
        connection = socket.create_connection(("127.0.0.1", server.port), timeout=10)
        connection.sendall(b"POST /v1/systemone HTTP/1.1\r\nHost: x\r\nContent-Length: 99\r\n\r\n{")
        assert connection.recv(4096).startswith(b"HTTP/1.1 408")
        connection.close()


def test_a_large_body_is_413_before_it_is_read():
    limits = TransportLimits(max_body_bytes=1000)
    with serve("zeros", plugins=plugins(family()), transport=limits) as server:
        connection = socket.create_connection(("127.0.0.1", server.port), timeout=10)
        connection.sendall(
            b"POST /v1/systemone HTTP/1.1\r\nHost: x\r\nContent-Length: 9999\r\n\r\n"
        )
        assert connection.recv(4096).startswith(b"HTTP/1.1 413")
        connection.close()


def test_too_much_text_is_413_and_told():
    limits = RequestLimits(max_text_chars=1000)
    with serve("zeros", plugins=plugins(family()), limits=limits) as server:
        reply = server.post("/v1/systemone", {**BODY, "state": ["x" * 600, {"y" * 600: 1}]})
        assert server.post("/v1/systemone", {**BODY, "x_more": "z" * 2000}).status == 200
    assert reply.status == 413
    assert "limit 1000" in reply.json["detail"]["message"]


def held() -> tuple[Zeros, Any]:
    executor = Zeros()
    return executor, plugins(family(executor=executor, example=None))


def test_a_full_queue_is_529_with_retry_after():
    executor, found = held()
    with serve("zeros", plugins=found, max_queued_requests=1) as server:
        executor.hold.clear()
        with ThreadPoolExecutor(1) as pool:
            first = pool.submit(server.post, "/v1/systemone", BODY)
            wait_for(lambda: executor.batches)
            reply = server.post("/v1/systemone", BODY)
            executor.hold.set()
            assert first.result().status == 200
    assert reply.status == 529
    assert int(reply.headers["retry-after"]) >= 1
    assert reply.json["detail"]["error_type"] == "overloaded_error"


@pytest.mark.parametrize("held_part", ["decode", "check_text_size"])
def test_a_large_body_that_no_thread_decodes_or_parses_in_time_is_504(monkeypatch, held_part):
    gate, ended, whole = threading.Event(), [], getattr(server_module, held_part)

    def held_back(*args):
        gate.wait(10)
        ended.append(held_part)
        return whole(*args)

    monkeypatch.setattr(server_module, held_part, held_back)
    _, found = held()
    with serve("zeros", plugins=found, request_timeout_s=0.1) as server:
        reply = server.post("/v1/systemone", BODY | {"state": "a" * 100_000})
        assert not ended
        gate.set()
    assert reply.status == 504
    assert reply.json["detail"]["error_type"] == "deadline_exceeded"


def test_a_deadline_is_504():
    executor, found = held()
    with serve("zeros", plugins=found, request_timeout_s=0.1) as server:
        executor.hold.clear()
        reply = server.post("/v1/systemone", BODY)
        executor.hold.set()
    assert reply.status == 504


def test_a_client_that_leaves_takes_its_waiting_work_along():
    executor, found = held()
    with serve("zeros", plugins=found) as server:
        executor.hold.clear()
        with ThreadPoolExecutor(1) as pool:
            first = pool.submit(server.post, "/v1/systemone", BODY)
            wait_for(lambda: len(executor.batches) == 1)
            leaver = HTTPConnection("127.0.0.1", server.port)
            leaver.request("POST", "/v1/systemone", json.dumps(BODY))
            wait_for(lambda: in_flight(server) == 2)
            leaver.close()
            wait_for(lambda: in_flight(server) == 1)
            executor.hold.set()
            assert first.result().status == 200
    assert executor.batches == [3]


def in_flight(server: TestServer) -> int:
    lines = server.get("/metrics").body.decode().splitlines()
    return int(
        float(next(x for x in lines if x.startswith("system1_requests_in_flight ")).split()[1])
    )


def wait_for(claim: Any) -> None:
    limit = time.monotonic() + 10
    while not claim():
        assert time.monotonic() < limit
        time.sleep(0.005)


def test_a_failing_executor_is_500_and_says_nothing():
    executor, found = held()
    with serve("zeros", plugins=found) as server:
        executor.error = ValueError("secret")
        reply = server.post("/v1/systemone", BODY)
        executor.error = None
        assert server.post("/v1/systemone", BODY).status == 200
    assert reply.status == 500
    assert b"secret" not in reply.body


def test_while_loading_it_answers_503():
    gate = threading.Event()

    def load_executor(load: Any) -> Zeros:
        gate.wait(20)
        return Zeros()

    found = plugins(family(load_executor=load_executor))
    from system1_core.testing import server as harness

    ready = harness._port_when_ready
    seen: list[Any] = []

    def probe(running: Any, thread: Any) -> int:
        wait_for(lambda: running.started)
        early = TestServer(running.bound_port)
        seen.extend([early.get("/health"), early.post("/v1/systemone", BODY)])
        gate.set()
        return ready(running, thread)

    harness._port_when_ready = probe
    try:
        with serve("zeros", plugins=found) as server:
            assert server.get("/health").status == 200
    finally:
        harness._port_when_ready = ready
    health, reply = seen
    assert (health.status, health.json["status"]) == (503, "loading")
    assert reply.status == 503
    assert reply.headers["retry-after"] == "1"
