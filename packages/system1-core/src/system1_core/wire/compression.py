"""Content-Encoding: decompression that never holds more than the cap and one chunk."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import TypeVar

import zstandard

from system1_core.errors import InvalidRequest, TooLarge, UnsupportedEncoding

_CHUNK = 2**16
_OUTPUT_CHUNK = 2**20
# A block of zstd takes 4 bytes and gives up to 128 KiB: 128 bytes give at most 4 MiB.
_ZSTD_CHUNK = 128
# RFC 9659: what a decoder of this content encoding must support.
_ZSTD_WINDOW = 8 * 2**20
# Block-parallel compressors write one member or frame for each block of 64 KiB or more.
_MAX_MEMBERS = 1024
_MAX_ENCODINGS = 4

Plain = bytes | bytearray
Stream = TypeVar("Stream")


def decompress(raw: Plain, encoding: str, cap: int) -> Plain:
    """`raw` without the encodings that `encoding` (a Content-Encoding header) lists.

    Raises `UnsupportedEncoding`, `TooLarge` above `cap` bytes, and `InvalidRequest` for data that
    is truncated, corrupt or followed by something else.
    """
    names = [name.strip().lower() for name in encoding.split(",") if name.strip()]
    for name in names:
        if name not in _DECODERS:
            raise UnsupportedEncoding(
                f"Content-Encoding {name[:40]!r} is not supported: send "
                "zstd, gzip, deflate or identity"
            )
    if len(names) > _MAX_ENCODINGS:
        raise UnsupportedEncoding(
            f"{len(names)} content encodings, limit {_MAX_ENCODINGS}: use one"
        )
    for name in reversed(names):
        raw = _DECODERS[name](raw, cap)
    return raw


def _identity(raw: Plain, cap: int) -> Plain:
    return raw


def _gzip(raw: Plain, cap: int) -> Plain:
    return _inflate(raw, cap, "gzip", 31)


def _deflate(raw: Plain, cap: int) -> Plain:
    # The name means the zlib format, but some clients send the bare stream.
    is_zlib = len(raw) >= 2 and raw[0] & 15 == 8 and (raw[0] << 8 | raw[1]) % 31 == 0
    return _inflate(raw, cap, "deflate", 15 if is_zlib else -15)


def _inflate(raw: Plain, cap: int, name: str, wbits: int) -> Plain:
    plain = bytearray()
    view = memoryview(raw)
    members = _Members(name)
    inflater = None
    for start in range(0, len(raw), _CHUNK):
        pending = bytes(view[start : start + _CHUNK])
        # A full output chunk may leave output behind even when all input is consumed.
        more = True
        while pending or more:
            if inflater is None:
                if not pending:
                    break
                inflater = members.open(lambda: zlib.decompressobj(wbits))
            try:
                piece = inflater.decompress(pending, _OUTPUT_CHUNK)
            except zlib.error:
                raise members.corrupt() from None
            _extend(plain, piece, cap, name)
            more = len(piece) == _OUTPUT_CHUNK
            pending = inflater.unconsumed_tail
            if inflater.eof:
                pending, inflater, more = inflater.unused_data, None, False
                if pending and name == "deflate":
                    raise members.corrupt()
    if inflater is not None or not members.count:
        raise members.truncated()
    return plain


def _zstd(raw: Plain, cap: int) -> Plain:
    decompressor = zstandard.ZstdDecompressor(max_window_size=max(cap, _ZSTD_WINDOW))
    members = _Members("zstd")
    try:
        size = zstandard.get_frame_parameters(bytes(raw[:18])).content_size
    except zstandard.ZstdError:
        raise members.corrupt() from None
    # The one-shot call ignores whatever follows a frame that declares 0 bytes.
    if size not in (0, zstandard.CONTENTSIZE_UNKNOWN, zstandard.CONTENTSIZE_ERROR):
        if size > cap:
            raise _too_large(size, cap, "zstd")
        try:
            # What the official SDK sends: a single frame that declares its size.
            return decompressor.decompress(raw, allow_extra_data=False)
        except zstandard.ZstdError:
            pass  # several frames, or broken ones: the slow path tells which
    return _zstd_frames(raw, cap, decompressor, members)


def _zstd_frames(
    raw: Plain, cap: int, decompressor: zstandard.ZstdDecompressor, members: _Members
) -> Plain:
    plain = bytearray()
    view = memoryview(raw)
    frame = None
    for start in range(0, len(raw), _ZSTD_CHUNK):
        pending = bytes(view[start : start + _ZSTD_CHUNK])
        while pending:
            if frame is None:
                frame = members.open(decompressor.decompressobj)
            try:
                piece = frame.decompress(pending)
            except zstandard.ZstdError:
                raise members.corrupt() from None
            _extend(plain, piece, cap, "zstd")
            pending = b""
            if frame.eof:
                pending, frame = frame.unused_data, None
    if frame is not None or not members.count:
        raise members.truncated()
    return plain


class _Members:
    """Counts the members (gzip) or frames (zstd) of one body, and words what is wrong with it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.count = 0

    def open(self, make: Callable[[], Stream]) -> Stream:
        self.count += 1
        if self.count > _MAX_MEMBERS:
            raise self._invalid(f"more than {_MAX_MEMBERS} compressed members in one body")
        return make()

    def corrupt(self) -> InvalidRequest:
        return self._invalid("corrupt, or followed by other data")

    def truncated(self) -> InvalidRequest:
        return self._invalid("truncated")

    def _invalid(self, what: str) -> InvalidRequest:
        return InvalidRequest.at((), f"{self.name} body: {what}", "encoding_invalid")


def _extend(plain: bytearray, piece: bytes, cap: int, name: str) -> None:
    if len(plain) + len(piece) > cap:
        raise _too_large(len(plain) + len(piece), cap, name)
    plain += piece


def _too_large(size: int, cap: int, name: str) -> TooLarge:
    return TooLarge(
        f"{name} body of at least {size} bytes when decompressed, limit {cap}: "
        "send less, or start the server with a higher --max-decoded-mib"
    )


_DECODERS: dict[str, Callable[[Plain, int], Plain]] = {
    "identity": _identity,
    "gzip": _gzip,
    "x-gzip": _gzip,
    "deflate": _deflate,
    "zstd": _zstd,
}
