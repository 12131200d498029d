"""What the host does with a picture before the model: it parses its body and decodes it."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from bodies import parse


def host_parts(pictures: Sequence[bytes], bodies: Sequence[bytes]) -> dict[str, Any]:
    """Median milliseconds of decoding and of parsing, by the product's own functions, one at a
    time with nothing beside it."""
    from models_qwen3_5.images import ImageLimits, decode_image

    limits = ImageLimits()
    decode = [_milliseconds(partial(decode_image, one, limits)) for one in pictures]
    parsed = [_milliseconds(partial(_parse_body, body)) for body in bodies]
    return {
        "decode_ms": statistics.median(decode),
        "parse_ms": statistics.median(parsed),
        "decode_samples": decode,
        "parse_samples": parsed,
    }


def _parse_body(body: bytes) -> Any:
    """As the server does it: strict JSON, then the dialect, which takes the base64 apart."""
    from system1_core.wire.strict_json import loads

    return parse(loads(body, 64))


def _milliseconds(call: Callable[[], Any]) -> float:
    call()
    begin = time.perf_counter()
    call()
    return (time.perf_counter() - begin) * 1e3
