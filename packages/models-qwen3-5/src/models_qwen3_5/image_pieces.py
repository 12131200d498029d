"""How many pieces an image file is made of, counted before Pillow walks through them."""

from __future__ import annotations

import re

# Each scan of a progressive JPEG is a pass over all its pixels and may take 12 bytes of the file:
# 2,000 of them took 1.2 s for one megapixel. Encoders write about ten, cameras three pictures.
MAX_SCANS = 100
# Pillow reads these in Python, or inflates them, one by one. A colour profile of a JPEG takes up
# to 255 segments.
MAX_PIECES = 1_000
# Encoders write pixels in chunks of 8 KiB or more.
MAX_DATA_CHUNKS = 20_000
MAX_FILLING = 65_536
_MARKER = re.compile(rb"\xff([^\xff])")
_SCAN = 0xDA
# Behind these Pillow expects no length, so that what follows counts.
_ALONE = frozenset((0x00, 0xC8, *range(0xD0, 0xDA), *range(0xF0, 0xFE)))


def excess_of(data: bytes) -> str | None:
    """What a PNG or JPEG file holds too much of, with its limit and a remedy; None if nothing."""
    if data.startswith(b"\xff\xd8"):
        return _excess_of_jpeg(data)
    return _excess_of_png(data) if data.startswith(b"\x89PNG") else None


def _excess_of_jpeg(data: bytes) -> str | None:
    scans = data.count(bytes((0xFF, _SCAN)))
    if scans > MAX_SCANS:
        return f"{scans} scans, limit {MAX_SCANS}; save it as a baseline JPEG"
    position, filling = 2, 0
    for _ in range(MAX_PIECES):
        found = _MARKER.search(data, position)
        filling += (found.start() if found else len(data)) - position
        if filling > MAX_FILLING:
            return f"over {MAX_FILLING} bytes between its segments; encode it again"
        if found is None or found[1][0] == _SCAN:
            return None
        position = found.end()
        if found[1][0] not in _ALONE:
            position += max(2, int.from_bytes(data[position : position + 2], "big"))
    return f"over {MAX_PIECES} segments before its pixels; save it without metadata"


def _excess_of_png(data: bytes) -> str | None:
    position, others, pixels = 8, 0, 0
    while position < len(data):
        if data[position + 4 : position + 8] == b"IDAT":
            pixels += 1
        else:
            others += 1
        if others > MAX_PIECES:
            return f"over {MAX_PIECES} chunks beside its pixels; save it without metadata"
        if pixels > MAX_DATA_CHUNKS:
            return f"over {MAX_DATA_CHUNKS} chunks of pixels; encode it again"
        # Length, name and checksum stand around a chunk's content.
        position += 12 + int.from_bytes(data[position : position + 4], "big")
    return None
