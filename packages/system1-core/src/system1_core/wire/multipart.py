"""multipart/form-data: the JSON part named "request", and the binary parts beside it."""

from __future__ import annotations

import logging

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from system1_core.errors import InvalidRequest, TooLarge

REQUEST_PART = "request"
_MAX_HEADER_BYTES = 8192
_MAX_BOUNDARY = 70  # RFC 2046

# What a client sends is reported to the client, not to the log of the server.
logging.getLogger("python_multipart.multipart").setLevel(logging.ERROR)


def boundary_of(content_type: str | None) -> bytes | None:
    """The boundary of a multipart body, None for any other Content-Type.

    Raises `InvalidRequest` for multipart/form-data without a usable boundary.
    """
    if not content_type or "multipart/form-data" not in content_type.lower():
        return None
    kind, options = parse_options_header(content_type.encode("latin-1", "replace"))
    if kind.strip() != b"multipart/form-data":
        return None
    boundary = options.get(b"boundary", b"")
    if not 0 < len(boundary) <= _MAX_BOUNDARY:
        raise _invalid(
            f"multipart boundary of {len(boundary)} characters in Content-Type, must be 1 to "
            f"{_MAX_BOUNDARY}"
        )
    return boundary


def split_parts(
    raw: bytes | bytearray, boundary: bytes, max_parts: int
) -> tuple[bytes, dict[str, bytes]]:
    """The bytes of the first part, which must be named "request", and the others by name.

    Raises `InvalidRequest` for a malformed body and `TooLarge` for more than `max_parts` parts.
    """
    collector = _Parts(max_parts)
    try:
        parser = MultipartParser(
            boundary,
            {
                "on_part_begin": collector.begin,
                "on_header_field": collector.header_name,
                "on_header_value": collector.header_value,
                "on_header_end": collector.header_end,
                "on_headers_finished": collector.headers_finished,
                "on_part_data": collector.content,
                "on_part_end": collector.end,
                "on_end": collector.finish,
            },
        )
        parser.write(bytes(raw))
    except FormParserError as error:
        raise _invalid(f"malformed multipart body: {error}") from None
    if not collector.is_complete:
        raise _invalid("multipart body: truncated before its closing boundary")
    parts = collector.parts
    if next(iter(parts), None) != REQUEST_PART:
        raise _invalid(
            f"the first part of a multipart body must be named {REQUEST_PART!r} and hold the JSON"
        )
    return parts.pop(REQUEST_PART), parts


def _invalid(msg: str) -> InvalidRequest:
    return InvalidRequest.at((), msg, "multipart_invalid")


class _Parts:
    """Receives the parser's callbacks, each with the whole buffer and a span of it."""

    def __init__(self, max_parts: int) -> None:
        self.parts: dict[str, bytes] = {}
        self.is_complete = False
        self._max_parts = max_parts
        self._count = 0

    def begin(self) -> None:
        self._count += 1
        if self._count > self._max_parts:
            raise TooLarge(f"more than {self._max_parts} parts in a multipart body")
        self._headers: dict[bytes, bytes] = {}
        self._header_bytes = 0
        self._field = bytearray()
        self._value = bytearray()
        self._name = ""
        self._spans: list[bytes] = []

    def header_name(self, buffer: bytes, start: int, end: int) -> None:
        self._grow(self._field, buffer, start, end)

    def header_value(self, buffer: bytes, start: int, end: int) -> None:
        self._grow(self._value, buffer, start, end)

    def _grow(self, part: bytearray, buffer: bytes, start: int, end: int) -> None:
        self._header_bytes += end - start
        if self._header_bytes > _MAX_HEADER_BYTES:
            raise _invalid(f"headers of part {self._count}: over {_MAX_HEADER_BYTES} bytes")
        part += buffer[start:end]

    def header_end(self) -> None:
        self._headers[bytes(self._field).lower()] = bytes(self._value)
        self._field.clear()
        self._value.clear()

    def headers_finished(self) -> None:
        _, options = parse_options_header(self._headers.get(b"content-disposition", b""))
        self._name = options.get(b"name", b"").decode("utf-8", "replace")
        if not self._name:
            raise _invalid(f"part {self._count} of the multipart body has no name")
        if self._name in self.parts:
            raise _invalid(f"two parts of the multipart body are named {self._name[:100]!r}")
        encoding = self._headers.get(b"content-transfer-encoding", b"binary").strip().lower()
        if encoding not in (b"binary", b"8bit", b"7bit"):
            raise _invalid(
                f"part {self._name[:100]!r}: Content-Transfer-Encoding "
                f"{encoding.decode('latin-1')[:40]!r}, send binary"
            )

    def content(self, buffer: bytes, start: int, end: int) -> None:
        self._spans.append(buffer[start:end])

    def end(self) -> None:
        spans = self._spans
        self.parts[self._name] = spans[0] if len(spans) == 1 else b"".join(spans)

    def finish(self) -> None:
        self.is_complete = True
