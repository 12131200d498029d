"""Bodies and images that the tests of the wire share."""

import zlib
from collections.abc import Callable
from typing import Any

import pytest

from system1_core.errors import InvalidRequest
from system1_core.wire.dialect import Body, RequestLimits
from system1_core.wire.systemone import SystemOne


def _png(seed: int) -> bytes:
    def chunk(kind: bytes, content: bytes) -> bytes:
        framed = kind + content
        return len(content).to_bytes(4, "big") + framed + zlib.crc32(framed).to_bytes(4, "big")

    header = b"\0\0\0\1\0\0\0\1\x08\0\0\0\0"
    pixel = zlib.compress(bytes((0, seed)))
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", pixel) + chunk(b"IEND", b"")
    )


@pytest.fixture
def png() -> Callable[[int], bytes]:
    """PNG files of one grey pixel; another seed gives another file."""
    return _png


@pytest.fixture
def parse() -> Callable[..., Any]:
    """Parse a System One body with default limits, or those given by name."""

    def parse(json: Any, parts: dict[str, bytes] | None = None, **limits: int) -> Any:
        return SystemOne().parse(Body(json=json, parts=parts or {}), RequestLimits(**limits))

    return parse


@pytest.fixture
def refusal() -> Callable[..., list[dict[str, Any]]]:
    """The `detail` list of the 422 that a call raises."""

    def refusal(call: Callable[..., Any], *args: Any, **kwargs: Any) -> list[dict[str, Any]]:
        with pytest.raises(InvalidRequest) as raised:
            call(*args, **kwargs)
        return [problem.as_json() for problem in raised.value.problems]

    return refusal
