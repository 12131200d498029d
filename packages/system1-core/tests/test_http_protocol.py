"""Heads that are too large, too slow or no HTTP, and requests to upgrade."""

from __future__ import annotations

import json
import socket

import pytest
from fakes import family, plugins

from system1_core import http_protocol
from system1_core.testing import TestServer, serve

BODY = json.dumps({"state": "x", "questions": {"q": {"type": "noul", "instructions": "?"}}})


@pytest.fixture(scope="module")
def server():
    with serve("zeros", plugins=plugins(family())) as running:
        yield running


def talk(server: TestServer, raw: bytes, reads: int = 1) -> bytes:
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection:
        connection.sendall(raw)
        reply = b""
        while len(reply) < reads and (chunk := connection.recv(65536)):
            reply += chunk
        return reply


@pytest.mark.parametrize("protocol", ["h2c", "websocket"])
def test_a_request_to_upgrade_is_answered_as_if_it_had_not_asked(server, protocol):
    headers = {"Connection": "Upgrade, HTTP2-Settings", "Upgrade": protocol, "HTTP2-Settings": ""}
    assert server.post("/v1/systemone", BODY.encode(), headers).status == 200


@pytest.mark.parametrize(
    "raw",
    [
        b"\x16\x03\x01 no http\r\n\r\n",
        b"NOPE / HTTP/1.1\r\n\r\n",
        b"GET /\xc3\xa9 HTTP/1.1\r\n\r\n",
    ],
    ids=["tls", "method", "path"],
)
def test_what_is_no_http_gets_a_shaped_400(server, raw):
    reply = talk(server, raw)
    assert reply.startswith(b"HTTP/1.1 400 ")
    assert b"x-typesafe-request-id: " in reply
    assert json.loads(reply.partition(b"\r\n\r\n")[2])["detail"]["error_type"] == "bad_request"


@pytest.mark.parametrize(
    "raw",
    [
        b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + b"x-more: %s\r\n" % (b"y" * 1000) * 70 + b"\r\n",
    ],
    ids=["url", "headers"],
)
def test_a_head_that_is_too_large_is_431(server, raw):
    assert talk(server, raw).startswith(b"HTTP/1.1 431 ")
    assert server.get("/health").status == 200


def test_a_head_that_is_too_slow_is_408(server, monkeypatch):
    monkeypatch.setattr(http_protocol, "HEAD_TIMEOUT_S", 0.2)
    assert talk(server, b"GET /health HTTP/1.1\r\nHost: ").startswith(b"HTTP/1.1 408 ")


def test_a_slow_answer_outlives_the_limit_of_the_head(server, monkeypatch):
    monkeypatch.setattr(http_protocol, "HEAD_TIMEOUT_S", 0.2)
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection:
        head = f"POST /v1/systemone HTTP/1.1\r\nHost: x\r\nContent-Length: {len(BODY)}\r\n\r\n"
        for _ in range(2):
            connection.sendall(head.encode())
            connection.settimeout(0.4)
            with pytest.raises(TimeoutError):
                connection.recv(1)
            connection.settimeout(10)
            connection.sendall(BODY.encode())
            assert connection.recv(65536).startswith(b"HTTP/1.1 200 ")
