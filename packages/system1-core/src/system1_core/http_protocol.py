"""What uvicorn's HTTP protocol lacks on a server open to the network.

Heads are bounded in size and time, a request to upgrade the connection is answered as if it had
not asked, and what is not HTTP gets an error in the protocol's shape.
"""

from __future__ import annotations

import asyncio
import json
import re
import uuid
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

MAX_HEAD_BYTES = 64 * 1024
HEAD_TIMEOUT_S = 20.0

# curl --http2 and Java's client ask for h2c; the parser would take the body for another protocol.
_UPGRADE = re.compile(rb"(\r\n)upgrade(?=:)", re.IGNORECASE)
_REASONS = {400: b"Bad Request", 408: b"Request Timeout", 431: b"Request Header Fields Too Large"}


class BoundedHttpProtocol(HttpToolsProtocol):
    """One connection."""

    _head_bytes = 0
    _in_head = True
    _is_refused = False
    _head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel_head_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._is_refused:
            return
        if self._in_head:
            if self._head_timer is None:
                self._await_head()
            if b"pgrade:" in data or b"PGRADE:" in data:
                head, end, body = data.partition(b"\r\n\r\n")
                data = _UPGRADE.sub(rb"\1ignored", head) + end + body
        super().data_received(data)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._head_bytes = 0

    def on_url(self, url: bytes) -> None:
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._count(len(name) + len(value))
        if not self._is_refused:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._cancel_head_timer()
        self._in_head = False
        if not self._is_refused:
            super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        if not self._is_refused:
            super().on_body(body)

    def on_message_complete(self) -> None:
        self._in_head = True
        if not self._is_refused:
            super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        """Called by uvicorn for what is not HTTP."""
        self._refuse(400, "bad_request", "the bytes sent are no HTTP request")

    def _count(self, num_bytes: int) -> None:
        self._head_bytes += num_bytes
        if self._head_bytes > MAX_HEAD_BYTES:
            self._refuse(431, "headers_too_large", f"URL and headers exceed {MAX_HEAD_BYTES} bytes")

    def _await_head(self) -> None:
        self._head_timer = self.loop.call_later(HEAD_TIMEOUT_S, self._head_is_late)

    def _head_is_late(self) -> None:
        self._head_timer = None
        msg = f"the request's head did not arrive within {HEAD_TIMEOUT_S:g} s"
        self._refuse(408, "request_timeout", msg)

    def _cancel_head_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _refuse(self, status: int, error_type: str, message: str) -> None:
        if self._is_refused:
            return
        self._is_refused = True
        if not self.transport.is_closing():
            self.transport.write(_response(status, error_type, message))
            self.transport.close()


def _response(status: int, error_type: str, message: str) -> bytes:
    detail: dict[str, Any] = {"detail": {"error_type": error_type, "message": message}}
    body = json.dumps(detail).encode()
    head = (
        f"content-type: application/json\r\ncontent-length: {len(body)}\r\n"
        f"x-typesafe-request-id: {uuid.uuid4().hex}\r\nconnection: close\r\n\r\n"
    )
    return b"HTTP/1.1 %d %s\r\n" % (status, _REASONS[status]) + head.encode() + body
