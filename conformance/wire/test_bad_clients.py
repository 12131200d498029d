"""Clients that send too much, too slowly, nonsense, or leave."""

from __future__ import annotations

import json
import socket
from typing import Any

import pytest
from questions import BODY, QUESTIONS, STATE, distance
from zstandard import ZstdCompressor

from serving import Serving

MIB = 2**20


@pytest.fixture(autouse=True)
def _unharmed(mini: Serving) -> Any:
    """Whatever a test sends, the same good request is answered the same after it as before."""
    before = mini.ask(BODY)
    yield
    assert distance(mini.ask(BODY), before) <= 1e-5


def connect(server: Serving) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.port), timeout=30)


def head(length: int, path: str = "/v1/systemone") -> bytes:
    return f"POST {path} HTTP/1.1\r\nHost: test\r\nContent-Length: {length}\r\n\r\n".encode()


def status_line(connection: socket.socket) -> bytes:
    received = b""
    while b"\r\n" not in received:
        chunk = connection.recv(65536)
        assert chunk, f"closed after {received!r}"
        received += chunk
    return received.split(b"\r\n")[0]


def test_a_body_that_does_not_arrive_gets_408(mini: Serving) -> None:
    with connect(mini) as connection:
        connection.sendall(head(1000) + b'{"state":')
        assert b" 408 " in status_line(connection)


def test_a_body_that_trickles_gets_408(mini: Serving) -> None:
    with connect(mini) as connection:
        connection.settimeout(0.2)
        connection.sendall(head(1000))
        line = b""
        for _ in range(50):
            connection.sendall(b" ")
            try:
                line = status_line(connection)
            except TimeoutError:
                continue
            break
        assert b" 408 " in line


def test_an_announced_oversized_body_gets_413_before_it_is_sent(mini: Serving) -> None:
    with connect(mini) as connection:
        connection.sendall(head(2 * MIB))
        assert b" 413 " in status_line(connection)


def test_an_oversized_body_in_chunks_gets_413(mini: Serving) -> None:
    with connect(mini) as connection:
        connection.sendall(
            b"POST /v1/systemone HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\n"
        )
        chunk = b"10000\r\n" + b" " * 0x10000 + b"\r\n"
        try:
            for _ in range(32):
                connection.sendall(chunk)
        except (BrokenPipeError, ConnectionResetError):
            pass  # the server may close once it has refused
        assert b" 413 " in status_line(connection)


def test_a_message_on_size_names_value_and_limit(mini: Serving) -> None:
    reply = mini.post("/v1/systemone", b" " * (MIB + 1))
    assert reply.status == 413
    message = reply.json["detail"]["message"]
    assert str(MIB + 1) in message
    assert str(MIB) in message


def test_a_zstd_bomb_gets_413(mini: Serving) -> None:
    bomb = ZstdCompressor(level=19).compress(bytes(512 * MIB))
    assert len(bomb) < MIB
    reply = mini.post("/v1/systemone", bomb, {"Content-Encoding": "zstd"})
    assert reply.status == 413


@pytest.mark.parametrize("encoding", ["br", "compress", "zstd, rot13"])
def test_another_encoding_gets_415(mini: Serving, encoding: str) -> None:
    reply = mini.post("/v1/systemone", b"{}", {"Content-Encoding": encoding})
    assert reply.status == 415
    assert reply.json["detail"]["error_type"] == "unsupported_encoding"


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"not json", id="text"),
        pytest.param(b"\xff\xfe\x00", id="not utf-8"),
        pytest.param(b'{"state": "\\ud800", "questions": {}}', id="a lone surrogate"),
        pytest.param(b'{"state": "a", "state": "b"}', id="a key twice"),
        pytest.param(b'{"state": NaN}', id="NaN"),
        pytest.param(b'{"state": 1e999}', id="an infinite number"),
        pytest.param(b"[" * 100_000, id="open brackets"),
        pytest.param(b'{"a":' * 100_000 + b"1" + b"}" * 100_000, id="nested objects"),
        pytest.param(b'{"state": ' + b"9" * 100_000 + b"}", id="a huge integer"),
        pytest.param(b"null", id="null"),
        pytest.param(b"[]", id="an array"),
    ],
)
@pytest.mark.parametrize("route", ["systemone", "systemone/batch", "decisions"])
def test_a_body_that_is_no_request_gets_422(mini: Serving, raw: bytes, route: str) -> None:
    reply = mini.post(f"/v1/{route}", raw)
    assert reply.status == 422, reply.body
    assert reply.headers["content-type"] == "application/json"
    assert reply.headers["x-typesafe-request-id"]


LEVELS = [f"level {number}" for number in range(11)]
OPTIONS = {f"option {number}": None for number in range(256)}


@pytest.mark.parametrize(
    ("change", "place"),
    [
        pytest.param({"state": None}, ["body", "state"], id="null state"),
        pytest.param({"state": 3}, ["body", "state"], id="a number as state"),
        pytest.param({"state": True}, ["body", "state"], id="a boolean as state"),
        pytest.param({"questions": {}}, ["body", "questions"], id="no question"),
        pytest.param({"questions": []}, ["body", "questions"], id="a list of questions"),
        pytest.param({"model": 7}, ["body", "model"], id="a number as model"),
        pytest.param(
            {"questions": {"q": {"type": "choice", "criteria": OPTIONS}}},
            ["body", "questions", "q", "choice", "criteria"],
            id="256 options",
        ),
        pytest.param(
            {"questions": {"q": {"type": "score", "criteria": LEVELS}}},
            ["body", "questions", "q", "score", "criteria"],
            id="11 levels",
        ),
        pytest.param(
            {"questions": {"q": {"type": "choice", "criteria": {}}}},
            ["body", "questions", "q", "choice", "criteria"],
            id="no options",
        ),
        pytest.param(
            {"questions": {"q": {"type": "score", "criteria": {"0": "a", "1": "b"}}}},
            ["body", "questions", "q", "score", "criteria"],
            id="levels as a map",
        ),
        pytest.param(
            {"questions": {"q": {"type": "boolean"}}}, ["body", "questions", "q"], id="unknown type"
        ),
        pytest.param({"questions": {"q": {}}}, ["body", "questions", "q"], id="no type"),
        pytest.param(
            {"questions": {"q": {"type": "noul", "instructions": 5}}},
            ["body", "questions", "q", "noul", "instructions"],
            id="a number as instructions",
        ),
    ],
)
def test_a_wrong_field_gets_422_at_its_place(
    mini: Serving, change: dict[str, Any], place: list[str]
) -> None:
    reply = mini.post("/v1/systemone", {**BODY, **change})
    assert reply.status == 422, reply.body
    assert any(entry["loc"][: len(place)] == place for entry in reply.json["detail"]), reply.json
    assert all(entry["msg"] and entry["type"] for entry in reply.json["detail"])


def test_the_message_on_256_options_names_question_value_and_limit(mini: Serving) -> None:
    questions = {"many": {"type": "choice", "criteria": OPTIONS}}
    message = mini.post("/v1/systemone", {**BODY, "questions": questions}).json["detail"][0]["msg"]
    assert all(part in message for part in ("many", "256", "255"))


def test_an_unknown_model_gets_404_naming_it(mini: Serving) -> None:
    reply = mini.post("/v1/systemone", {**BODY, "model": "gpt-0"})
    assert reply.status == 404
    assert "gpt-0" in reply.json["detail"]["message"]


def test_an_unknown_path_gets_404_and_a_wrong_method_405(mini: Serving) -> None:
    assert mini.get("/v1/nothing").status == 404
    reply = mini.get("/v1/systemone")
    assert reply.status == 405
    assert "POST" in reply.headers["allow"]
    assert reply.json["detail"]["error_type"]


def test_a_body_cut_off_by_a_client_that_leaves_harms_nobody(mini: Serving) -> None:
    for _ in range(20):
        with connect(mini) as connection:
            connection.sendall(head(1000) + b'{"state"')
    assert mini.get("/health").status == 200


def test_a_form_type_is_read_as_json(mini: Serving) -> None:
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    assert mini.ask({"state": STATE, "questions": QUESTIONS}, headers)


def test_nonsense_instead_of_http_gets_400_or_a_closed_connection(mini: Serving) -> None:
    with connect(mini) as connection:
        connection.sendall(b"\x16\x03\x01\x02\x00" + bytes(64) + b"\r\n\r\n")
        answer = connection.recv(4096)
        assert answer == b"" or b" 400 " in answer


def test_a_well_formed_request_id_comes_back_and_another_does_not(mini: Serving) -> None:
    raw = json.dumps(BODY).encode()
    assert (
        mini.post("/v1/systemone", raw, {"x-typesafe-request-id": "mine-1"}).headers[
            "x-typesafe-request-id"
        ]
        == "mine-1"
    )
    given = "not well formed"
    reply = mini.post("/v1/systemone", raw, {"x-typesafe-request-id": given})
    assert reply.headers["x-typesafe-request-id"] != given
