"""JSON as the wire accepts it: what RFC 8259 leaves open or Python lets through is refused.

Key order is kept, integers are exact, and floats are Python's (so `1.50` is written `1.5`).
"""

from __future__ import annotations

import json
import math
import re
from typing import Any, NoReturn

from system1_core.errors import InvalidRequest

# Python refuses to print longer integers (`sys.int_info.default_max_str_digits`), and parsing
# them takes quadratic time.
MAX_INT_DIGITS = 4300
# One value costs up to 80 bytes of memory for 2 bytes of body.
MAX_VALUES = 1_000_000

# Cheap test whether a body escapes any surrogate.
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
# Either a pair, or a lone half in the group. Searched after escaped backslashes are blanked out,
# so that every `\u` is a real escape.
_PAIR_OR_LONE = re.compile(rb"\\u[dD](?:[89abAB]..\\u[dD][c-fC-F]..|([89a-fA-F]..))", re.DOTALL)
_NOT_STRUCTURE = bytes(set(range(256)) - set(b"[]{},"))


class _Refused(ValueError):
    """A value that Python would have accepted."""


def loads(raw: bytes | bytearray, max_depth: int, max_values: int = MAX_VALUES) -> Any:
    """The value that `raw` spells in UTF-8.

    Raises `InvalidRequest` of type "json_invalid" for anything that is not strict JSON, for
    duplicate keys, numbers out of range, lone surrogates, more than `max_depth` levels of arrays
    and objects, or more than `max_values` values. Takes linear time.
    """
    if not raw or raw.isspace():
        raise _invalid("the body is empty: send a JSON object")
    text = _text(raw)
    _check_size(raw, max_depth, max_values)
    # Bodies with a picture hold no backslash, which is found out ten times as fast.
    if b"\\" in raw and _SURROGATE.search(raw):
        _check_surrogates(raw)
    try:
        return _DECODER.decode(text)
    except json.JSONDecodeError as error:
        raise _invalid(f"not valid JSON: {error.msg} at character {error.pos}", error.pos) from None
    except _Refused as error:
        raise _invalid(str(error)) from None
    except RecursionError:
        # Malformed text only, unless the caller allows more levels than Python's own limit.
        raise _invalid("not valid JSON: nested too deeply, or brackets do not match") from None


def dumps(value: Any) -> bytes:
    """Compact UTF-8; a lone surrogate, which only a header could bring in, leaves as an escape."""
    return _ENCODER.encode(value).encode("utf-8", "backslashreplace")


def _invalid(msg: str, *position: int) -> InvalidRequest:
    return InvalidRequest.at(position, msg, "json_invalid")


def _text(raw: bytes | bytearray) -> str:
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        msg = f"not valid UTF-8: {error.reason} at byte {error.start}"
        raise _invalid(msg, error.start) from None
    if text.startswith("\ufeff"):
        raise _invalid("the body begins with a byte order mark: send UTF-8 without one", 0)
    return text


def _check_size(raw: bytes | bytearray, max_depth: int, max_values: int) -> None:
    """Bounds depth and number of values before anything is built.

    Counting brackets and commas anywhere gives an upper bound, which is enough for most bodies;
    the exact count leaves strings out.
    """
    brackets = raw.count(b"[") + raw.count(b"{")
    if brackets <= max_depth and brackets + raw.count(b",") < max_values:
        return
    structure = _outside_strings(raw).translate(None, _NOT_STRUCTURE)
    opened = structure.count(b"[") + structure.count(b"{")
    values = 1 + opened + structure.count(b",")
    if values > max_values:
        raise _invalid(f"about {values} values in the body, limit {max_values}: send less")
    if opened <= max_depth:
        return
    depth = 0
    for byte in structure.translate(None, b","):
        depth += 1 if byte in b"[{" else -1
        if depth > max_depth:
            raise _invalid(
                f"nested deeper than {max_depth} levels of arrays and objects: flatten it"
            )


def _outside_strings(raw: bytes | bytearray) -> bytes:
    # Backslashes stand only in strings, in runs that start with an escape, so these two
    # replacements leave exactly the quotes that open and close strings.
    return b"".join(raw.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')[::2])


def _check_surrogates(raw: bytes | bytearray) -> None:
    for found in _PAIR_OR_LONE.finditer(raw.replace(b"\\\\", b"__")):
        if found.group(1):
            escape = found.group().decode("ascii", "replace")
            msg = f"lone surrogate {escape} at byte {found.start()}: escape both halves of a pair"
            raise _invalid(msg, found.start())


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise _Refused(f"duplicate key {key[:100]!r} in an object: keep one")
            seen.add(key)
    return members


def _integer(digits: str) -> int:
    if len(digits) > MAX_INT_DIGITS and len(digits.lstrip("-")) > MAX_INT_DIGITS:
        length = len(digits.lstrip("-"))
        raise _Refused(f"integer of {length} digits, limit {MAX_INT_DIGITS}: send it as a string")
    return int(digits)


def _float(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        raise _Refused(f"number {digits[:40]} is outside the range of a double: send a string")
    return number


def _constant(name: str) -> NoReturn:
    raise _Refused(f"{name} is not a JSON number: send null or a string")


_DECODER = json.JSONDecoder(
    object_pairs_hook=_object,
    parse_int=_integer,
    parse_float=_float,
    parse_constant=_constant,
)
_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))
