"""Files whose pieces would keep a decoder busy for minutes are refused before it sees them."""

import io
import struct
import zlib

import pytest
from PIL import Image

from models_qwen3_5.image_pieces import MAX_DATA_CHUNKS, MAX_FILLING, MAX_PIECES, MAX_SCANS
from models_qwen3_5.images import ImageRefused, decode_image, image_size


def encoded(kind, **options):
    buffer = io.BytesIO()
    Image.linear_gradient("L").convert("RGB").save(buffer, kind, **options)
    return buffer.getvalue()


JPEG, PNG = encoded("JPEG", progressive=True), encoded("PNG")


def with_scans(count):
    """The picture with its last scan again until it has `count`."""
    present, last, end = JPEG.count(b"\xff\xda"), JPEG.rindex(b"\xff\xda"), len(JPEG) - 2
    return JPEG[:end] + JPEG[last:end] * (count - present) + JPEG[end:]


def behind_start(content):
    return JPEG[:2] + content + JPEG[2:]


def chunk(name, content=b""):
    checksum = struct.pack(">I", zlib.crc32(name + content))
    return struct.pack(">I", len(content)) + name + content + checksum


def behind_header(content):
    return PNG[:33] + content + PNG[33:]


PROFILE = chunk(b"iCCP", b"x\0\0" + zlib.compress(bytes(1_000)))
SEGMENT = b"\xff\xe1\x00\x02"
REFUSED = {
    "scans": (with_scans(MAX_SCANS + 1), f"{MAX_SCANS + 1} scans, limit {MAX_SCANS}; save"),
    "segments": (behind_start(SEGMENT * (MAX_PIECES + 1)), f"over {MAX_PIECES} segments"),
    "fill bytes": (behind_start(b"\xff" * (MAX_FILLING + 9)), f"over {MAX_FILLING} bytes between"),
    "junk": (behind_start(SEGMENT + b"\0" * (MAX_FILLING + 9)), f"over {MAX_FILLING} bytes betw"),
    "fill to the end": (JPEG[:2] + b"\xff" * 2**23, f"over {MAX_FILLING} bytes between"),
    "hidden": (behind_start((b"\xff\xf0\xff\xf8" + SEGMENT * 9) * 200), f"over {MAX_PIECES} segm"),
    "junk to the end": (JPEG[:2] + SEGMENT + b"\0" * 99_999, f"over {MAX_FILLING} bytes between"),
    "profiles": (behind_header(PROFILE * (MAX_PIECES + 1)), f"over {MAX_PIECES} chunks beside"),
    "chunks behind": (PNG[:-12] + chunk(b"tEXt", b"a\0b") * (MAX_PIECES + 1) + PNG[-12:], "chunks"),
    "empty pixels": (behind_header(chunk(b"IDAT") * (MAX_DATA_CHUNKS + 1)), "chunks of pixels"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_a_file_of_too_many_pieces_is_refused_with_the_limit(kind):
    data, message = REFUSED[kind]
    for read in (decode_image, image_size):
        with pytest.raises(ImageRefused, match=message):
            read(data)


@pytest.mark.parametrize(
    "data",
    [
        with_scans(MAX_SCANS),
        behind_start(SEGMENT * (MAX_PIECES - 20)),
        behind_start(b"\xff" * 1_000),
        behind_header(chunk(b"tEXt", b"a\0b") * (MAX_PIECES - 20)),
        encoded("JPEG", icc_profile=bytes(15 * 2**20)),
    ],
    ids=["scans", "segments", "fill bytes", "chunks", "a large profile"],
)
def test_as_many_pieces_as_the_limits_allow_are_read(data):
    assert decode_image(data).size == (256, 256)


@pytest.mark.parametrize("data", [JPEG, PNG], ids=["jpeg", "png"])
def test_a_file_cut_anywhere_is_read_or_refused(data):
    for length in range(0, len(data), 7):
        try:
            assert decode_image(data[:length]).size == (256, 256)
        except ImageRefused:
            continue
