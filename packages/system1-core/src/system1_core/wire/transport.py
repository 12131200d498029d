"""Bytes from the socket: reading, decompression and multipart, each within its limit."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any

from system1_core.errors import BodyTimeout, TooLarge
from system1_core.wire.compression import decompress
from system1_core.wire.dialect import Body
from system1_core.wire.multipart import boundary_of, split_parts
from system1_core.wire.strict_json import loads

# Far below Python's recursion limit, which writing JSON and looking for images also meet.
MAX_DEPTH = 256

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]


class ClientGone(Exception):
    """The client closed its connection before its body was complete: nobody reads an answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransportLimits:
    """How large, deep and slow a body may be; `max_body_bytes` counts what comes over the wire."""

    max_body_bytes: int = 32 * 2**20
    max_decoded_bytes: int = 64 * 2**20
    max_depth: int = 64
    max_parts: int = 128
    body_timeout_s: float = 10.0

    def __post_init__(self) -> None:
        for name in self.__slots__:
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} must be above 0, got {getattr(self, name)}")
        if self.max_depth > MAX_DEPTH:
            raise ValueError(f"max_depth must be at most {MAX_DEPTH}, got {self.max_depth}")


async def read_body(receive: Receive, headers: Mapping[str, str], limits: TransportLimits) -> bytes:
    """The whole body, as it came over the wire.

    `headers` is keyed by lower-case names. Raises `TooLarge` before reading when Content-Length
    says so and while reading otherwise, `BodyTimeout` when the body takes longer than
    `body_timeout_s` in all, and `ClientGone`.
    """
    declared = headers.get("content-length", "")
    if declared.isdecimal() and len(declared) < 20 and int(declared) > limits.max_body_bytes:
        raise _too_large(int(declared), limits)
    try:
        async with asyncio.timeout(limits.body_timeout_s):
            return await _receive_all(receive, limits)
    except TimeoutError:
        raise BodyTimeout(
            f"the body did not arrive within {limits.body_timeout_s:g} s: send it again"
        ) from None


async def _receive_all(receive: Receive, limits: TransportLimits) -> bytes:
    buffer = bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        chunk: bytes = message.get("body", b"")
        if len(buffer) + len(chunk) > limits.max_body_bytes:
            raise _too_large(len(buffer) + len(chunk), limits)
        if not message.get("more_body", False):
            return bytes(buffer + chunk) if buffer else chunk
        buffer += chunk


def _too_large(size: int, limits: TransportLimits) -> TooLarge:
    return TooLarge(
        f"body of at least {size} bytes, limit {limits.max_body_bytes}: "
        "send less, or start the server with a higher limit"
    )


def decode(raw: bytes, headers: Mapping[str, str], limits: TransportLimits) -> Body:
    """Decompress `raw`, split it if it is multipart, and parse its JSON whatever its type says.

    Blocks for as long as that takes: run it off the event loop for large bodies. Raises
    `UnsupportedEncoding`, `TooLarge` or `InvalidRequest`.
    """
    encoding = headers.get("content-encoding")
    plain = decompress(raw, encoding, limits.max_decoded_bytes) if encoding else raw
    boundary = boundary_of(headers.get("content-type"))
    if boundary is None:
        return Body(json=loads(plain, limits.max_depth), num_bytes=len(plain))
    document, parts = split_parts(plain, boundary, limits.max_parts)
    return Body(json=loads(document, limits.max_depth), num_bytes=len(plain), parts=parts)
