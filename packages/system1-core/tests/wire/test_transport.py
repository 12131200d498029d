import asyncio
import gzip
import json
import tracemalloc
import zlib
from contextlib import suppress

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from system1_core.errors import (
    BodyTimeout,
    InvalidRequest,
    TooLarge,
    UnsupportedEncoding,
)
from system1_core.wire.transport import ClientGone, TransportLimits, decode, read_body

LIMITS = TransportLimits(max_body_bytes=1000, max_decoded_bytes=10_000)


def receiving(*messages):
    queue = list(messages)

    async def receive():
        if not queue:
            await asyncio.Event().wait()
        return queue.pop(0)

    return receive


def chunk(body, more_body=True):
    return {"type": "http.request", "body": body, "more_body": more_body}


async def test_chunks_are_joined():
    receive = receiving(chunk(b"ab"), chunk(b""), chunk(b"cd"), chunk(b"e", False))
    assert await read_body(receive, {}, LIMITS) == b"abcde"


async def test_a_message_without_fields_is_an_empty_body():
    assert await read_body(receiving({"type": "http.request"}), {}, LIMITS) == b""


async def test_a_declared_size_over_the_limit_is_refused_before_reading():
    with pytest.raises(TooLarge, match="1001 bytes, limit 1000"):
        await read_body(receiving(), {"content-length": "1001"}, LIMITS)


@pytest.mark.parametrize("declared", ["", "x", "-5", "9" * 5000, "²"])
async def test_a_malformed_content_length_does_not_stop_reading(declared):
    receive = receiving(chunk(b"ok", False))
    assert await read_body(receive, {"content-length": declared}, LIMITS) == b"ok"


@pytest.mark.parametrize("is_last", [True, False])
async def test_a_body_over_the_limit_is_refused_while_reading(is_last):
    receive = receiving(chunk(b"x" * 600), chunk(b"x" * 401, not is_last))
    with pytest.raises(TooLarge, match="1001 bytes, limit 1000"):
        await read_body(receive, {"content-length": "5"}, LIMITS)


async def test_a_body_of_exactly_the_limit_is_read():
    receive = receiving(chunk(b"x" * 600), chunk(b"x" * 400, False))
    assert len(await read_body(receive, {}, LIMITS)) == 1000


async def test_a_body_that_stalls_times_out_by_its_total_time():
    limits = TransportLimits(body_timeout_s=0.05)
    reading = read_body(receiving(chunk(b"a"), chunk(b"b")), {}, limits)
    with pytest.raises(BodyTimeout, match=r"0\.05 s"):
        await asyncio.wait_for(reading, 2)


async def test_a_client_that_leaves_is_told_apart_from_an_error():
    with pytest.raises(ClientGone):
        await read_body(receiving(chunk(b"a"), {"type": "http.disconnect"}), {}, LIMITS)


@pytest.mark.parametrize("name", ["max_body_bytes", "max_depth", "body_timeout_s"])
def test_a_limit_of_zero_is_refused(name):
    with pytest.raises(ValueError, match=name):
        TransportLimits(**{name: 0})


def test_a_depth_near_pythons_recursion_limit_is_refused():
    assert TransportLimits(max_depth=256)
    with pytest.raises(ValueError, match="at most 256, got 257"):
        TransportLimits(max_depth=257)


DOCUMENT = json.dumps({"state": "x" * 3000}).encode()


def raw_deflate(content):
    packer = zlib.compressobj(wbits=-15)
    return packer.compress(content) + packer.flush()


def zstd_stream(content):
    packer = zstandard.ZstdCompressor(write_content_size=False).compressobj()
    return packer.compress(content) + packer.flush()


ENCODERS = {
    "identity": bytes,
    "gzip": gzip.compress,
    "x-gzip": gzip.compress,
    "deflate": zlib.compress,
    "zstd": zstandard.ZstdCompressor().compress,
}


@pytest.mark.parametrize("name", ENCODERS)
def test_every_supported_encoding_is_decoded(name):
    body = decode(ENCODERS[name](DOCUMENT), {"content-encoding": name.upper()}, LIMITS)
    assert body.json == json.loads(DOCUMENT)
    assert body.num_bytes == len(DOCUMENT)


@pytest.mark.parametrize("pack", [raw_deflate, zlib.compress])
def test_deflate_means_the_zlib_format_or_the_bare_stream(pack):
    assert decode(pack(DOCUMENT), {"content-encoding": "deflate"}, LIMITS).json["state"]


def test_zstd_without_a_declared_size_is_decoded():
    assert decode(zstd_stream(DOCUMENT), {"content-encoding": "zstd"}, LIMITS).json["state"]


@pytest.mark.parametrize("name", ["gzip", "zstd"])
def test_several_members_are_one_body(name):
    raw = ENCODERS[name](DOCUMENT[:50]) + ENCODERS[name](DOCUMENT[50:])
    assert decode(raw, {"content-encoding": name}, LIMITS).json == json.loads(DOCUMENT)


def test_a_skippable_zstd_frame_is_skipped():
    skippable = b"\x50\x2a\x4d\x18\x04\0\0\0abcd"
    raw = skippable + ENCODERS["zstd"](DOCUMENT)
    assert decode(raw, {"content-encoding": "zstd"}, LIMITS).json == json.loads(DOCUMENT)


def test_encodings_are_undone_from_last_to_first():
    raw = ENCODERS["zstd"](gzip.compress(DOCUMENT))
    headers = {"content-encoding": "gzip, identity , zstd"}
    assert decode(raw, headers, LIMITS).json == json.loads(DOCUMENT)


@pytest.mark.parametrize("name", ["br", "compress", "gzip, br", "aes128gcm"])
def test_an_unknown_encoding_names_the_supported_ones(name):
    with pytest.raises(UnsupportedEncoding, match="zstd, gzip, deflate or identity"):
        decode(b"x", {"content-encoding": name}, LIMITS)


def test_a_tower_of_encodings_is_refused():
    with pytest.raises(UnsupportedEncoding, match="limit 4"):
        decode(b"x", {"content-encoding": "gzip, gzip, gzip, gzip, gzip"}, LIMITS)


BOMB = b"0" * 20_000_000
BOMBS = {
    "gzip": gzip.compress(BOMB),
    "deflate": zlib.compress(BOMB),
    "zstd": zstandard.ZstdCompressor().compress(BOMB),
    "zstd of unknown size": zstd_stream(BOMB),
    "zstd that declares an exabyte": b"\x28\xb5\x2f\xfd\xe0" + b"\xff" * 8 + b"\x01\0\0",
    "zstd in many frames": zstandard.ZstdCompressor().compress(b"0" * 9000) * 500,
    "zstd that declares less than it holds": b"\x28\xb5\x2f\xfd\x60\x10\0"
    + b"\x02\0\x100" * 1000
    + b"\x03\0\x100",
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_refused_at_the_cap(name):
    with pytest.raises((TooLarge, InvalidRequest)) as raised:
        decode(BOMBS[name], {"content-encoding": name.split()[0]}, LIMITS)
    assert "limit 10000" in str(raised.value) or "corrupt" in str(raised.value)


def test_a_bomb_never_takes_much_more_memory_than_the_cap():
    limits = TransportLimits(max_decoded_bytes=1_000_000)
    tracemalloc.start()
    try:
        for name, raw in BOMBS.items():
            with pytest.raises((TooLarge, InvalidRequest)):
                decode(raw, {"content-encoding": name.split()[0]}, limits)
        assert tracemalloc.get_traced_memory()[1] < 8_000_000
    finally:
        tracemalloc.stop()


def test_a_body_of_exactly_the_cap_is_decoded():
    limits = TransportLimits(max_decoded_bytes=len(DOCUMENT))
    for name, encode in ENCODERS.items():
        assert decode(encode(DOCUMENT), {"content-encoding": name}, limits).num_bytes


@pytest.mark.parametrize("name", ["gzip", "deflate", "zstd"])
def test_a_truncated_body_is_422(name):
    raw = ENCODERS[name](DOCUMENT)
    for cut in (0, 1, 4, len(raw) // 2, len(raw) - 1):
        with pytest.raises(InvalidRequest) as raised:
            decode(raw[:cut], {"content-encoding": name}, LIMITS)
        assert raised.value.problems[0].type == "encoding_invalid"


@pytest.mark.parametrize("name", ["gzip", "deflate", "zstd"])
def test_trailing_garbage_is_422(name):
    raw = ENCODERS[name](DOCUMENT)
    for garbage in (b"\0", b"garbage after the frame", raw[:5]):
        with pytest.raises(InvalidRequest):
            decode(raw + garbage, {"content-encoding": name}, LIMITS)


@pytest.mark.parametrize("name", ["gzip", "zstd"])
def test_thousands_of_empty_members_are_refused(name):
    with pytest.raises(InvalidRequest, match="1024"):
        decode(ENCODERS[name](b"") * 100_000, {"content-encoding": name}, LIMITS)


@given(
    st.binary(max_size=300),
    st.sampled_from(["", "gzip", "deflate", "zstd", "identity", "gzip,zstd"]),
    st.sampled_from(["application/json", "multipart/form-data; boundary=b", "text/plain", None]),
)
def test_random_bytes_give_a_body_or_a_client_error(raw, encoding, content_type):
    headers = {"content-encoding": encoding}
    if content_type:
        headers["content-type"] = content_type
    with suppress(InvalidRequest, TooLarge):
        decode(raw, headers, LIMITS)


@given(st.data())
def test_a_damaged_compressed_body_gives_a_body_or_a_client_error(data):
    name = data.draw(st.sampled_from(["gzip", "deflate", "zstd"]))
    raw = bytearray(ENCODERS[name](DOCUMENT))
    for index in data.draw(st.lists(st.integers(0, len(raw) - 1), min_size=1, max_size=3)):
        raw[index] = data.draw(st.integers(0, 255))
    with suppress(InvalidRequest, TooLarge):
        decode(bytes(raw), {"content-encoding": name}, LIMITS)


@pytest.mark.parametrize(
    "content_type", [None, "", "text/plain", "application/x-www-form-urlencoded", "@;;="]
)
def test_json_is_parsed_whatever_the_content_type_says(content_type):
    headers = {} if content_type is None else {"content-type": content_type}
    assert decode(b'{"a": 1}', headers, LIMITS).json == {"a": 1}
