"""The bytes of an image as clients write them: base64 and data URLs, PNG or JPEG."""

from __future__ import annotations

import binascii
import hashlib
import re
from typing import Any

from system1_core.errors import MISSING, TooLarge
from system1_core.request import Image
from system1_core.wire.problems import Loc, Problems, kind_of

_SIGNATURES = {b"\x89PNG\r\n\x1a\n": "png", b"\xff\xd8\xff": "jpeg"}
_DATA_URL = re.compile(r"data:[^,]{0,200};base64,", re.IGNORECASE)


def format_of(content: bytes) -> str | None:
    """ "png" or "jpeg" by the signature, None for anything else."""
    for signature, name in _SIGNATURES.items():
        if content.startswith(signature):
            return name
    return None


def image_of(
    content: bytes, placeholder: str, loc: Loc, problems: Problems, max_bytes: int
) -> Image | None:
    """The image in `content`, or None with the problem noted; raises `TooLarge`."""
    _check_size(len(content), loc, max_bytes)
    kind = format_of(content)
    if kind is None:
        problems.add(
            loc,
            f"{_shown(loc)}: {len(content)} bytes that are neither PNG nor JPEG; convert the image",
            "image_invalid",
        )
        return None
    return Image(placeholder=placeholder, data=content, format=kind)


def decode_base64(text: Any, loc: Loc, problems: Problems, max_bytes: int) -> bytes | None:
    """The bytes behind strict base64, or None with the problem noted; raises `TooLarge`."""
    if not isinstance(text, str):
        found = "missing" if text is MISSING else kind_of(text)
        problems.add(loc, f"{_shown(loc)}: expected base64 in a string, got {found}", "string_type")
        return None
    _check_size(len(text) // 4 * 3 - 2, loc, max_bytes)
    try:
        content = binascii.a2b_base64(text, strict_mode=True)
    except ValueError:
        content = b""
    if not content:
        what = "is not strict base64 (standard alphabet, padded, no white space)"
        problems.add(loc, f"{_shown(loc)}: {what if text else 'is empty'}", "base64_invalid")
        return None
    return content


def decode_url(url: Any, loc: Loc, problems: Problems, max_bytes: int) -> bytes | None:
    """The bytes inside a base64 data URL; anything else is noted, remote URLs are never fetched."""
    if not isinstance(url, str):
        found = "missing" if url is MISSING else kind_of(url)
        problems.add(loc, f"{_shown(loc)}: expected a data URL, got {found}", "string_type")
        return None
    prefix = _DATA_URL.match(url)
    if prefix is None:
        problems.add(
            loc,
            f"{_shown(loc)}: {url[:60]!r} is not a base64 data URL; images are never fetched, "
            "send data:image/png;base64,… or data:image/jpeg;base64,…",
            "url_invalid",
        )
        return None
    return decode_base64(url[prefix.end() :], loc, problems, max_bytes)


def decode_either(text: Any, loc: Loc, problems: Problems, max_bytes: int) -> bytes | None:
    """The bytes behind base64 or a base64 data URL."""
    # No base64 text holds a colon.
    if isinstance(text, str) and ":" in text[:16]:
        return decode_url(text, loc, problems, max_bytes)
    return decode_base64(text, loc, problems, max_bytes)


def content_placeholder(content: bytes) -> str:
    """A placeholder of the official form for an image that came without one.

    The same bytes give the same placeholder, so an image sent twice is one image.
    """
    return f"<image:{hashlib.sha256(content).hexdigest()[:32]}>"


def _check_size(size: int, loc: Loc, max_bytes: int) -> None:
    if size > max_bytes:
        raise TooLarge(
            f"{_shown(loc)}: image of at least {size} bytes, limit {max_bytes}; send a smaller one"
        )


def _shown(loc: Loc) -> str:
    return ".".join(str(part)[:100] for part in loc)
