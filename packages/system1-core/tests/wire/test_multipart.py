import pytest

from system1_core.errors import InvalidRequest, TooLarge
from system1_core.wire.transport import TransportLimits, decode

HEADERS = {"content-type": "multipart/form-data; boundary=frontier"}
LIMITS = TransportLimits(max_parts=5)


def part(name, content=b"{}", headers=b""):
    disposition = f'Content-Disposition: form-data; name="{name}"\r\n'.encode()
    return b"--frontier\r\n" + disposition + headers + b"\r\n" + content + b"\r\n"


def multipart(*parts, closing=b"--frontier--\r\n"):
    return b"".join(parts) + closing


def refused(raw, headers=HEADERS):
    with pytest.raises(InvalidRequest) as raised:
        decode(raw, headers, LIMITS)
    (problem,) = raised.value.problems
    return problem


def test_the_request_part_is_the_json_and_the_others_are_bytes():
    body = decode(
        multipart(part("request", b'{"a": 1}'), part("asset-0", b"\r\n--front\r\n\0\xff")),
        HEADERS,
        LIMITS,
    )
    assert body.json == {"a": 1}
    assert body.parts == {"asset-0": b"\r\n--front\r\n\0\xff"}


def test_a_quoted_boundary_and_upper_case_are_understood():
    headers = {"content-type": 'Multipart/Form-Data; charset=utf-8; boundary="frontier"'}
    assert decode(multipart(part("request", b"[1]")), headers, LIMITS).json == [1]


def test_the_request_part_must_come_first():
    assert "'request'" in refused(multipart(part("asset-0"), part("request"))).msg


def test_a_form_without_a_request_part_is_refused():
    assert "'request'" in refused(multipart(part("file"))).msg
    assert "'request'" in refused(multipart()).msg


def test_two_parts_of_one_name_are_refused():
    assert "'a'" in refused(multipart(part("request"), part("a"), part("a"))).msg


def test_a_part_without_a_name_is_refused():
    nameless = b"--frontier\r\nContent-Type: image/png\r\n\r\nx\r\n"
    assert "no name" in refused(multipart(part("request"), nameless)).msg


def test_a_truncated_body_is_refused():
    whole = multipart(part("request", b'{"a": 1}'), part("asset-0", b"abc"))
    for cut in range(0, len(whole) - 4, 7):
        assert refused(whole[:cut]).type == "multipart_invalid"


def test_json_under_a_multipart_type_is_refused():
    assert refused(b'{"a": 1}').type == "multipart_invalid"


@pytest.mark.parametrize(
    "content_type",
    [
        "multipart/form-data",
        "multipart/form-data; boundary=",
        f"multipart/form-data; boundary={'b' * 71}",
    ],
)
def test_a_boundary_must_be_there(content_type):
    assert "boundary" in refused(b"x", {"content-type": content_type}).msg


def test_too_many_parts_are_413():
    with pytest.raises(TooLarge, match="5 parts"):
        decode(multipart(part("request"), *(part(f"p{i}") for i in range(5))), HEADERS, LIMITS)


def test_endless_part_headers_are_refused():
    headers = b"X-Filler: " + b"x" * 10_000 + b"\r\n"
    assert refused(multipart(part("request", headers=headers))).type == "multipart_invalid"


def test_a_transfer_encoding_that_would_change_the_bytes_is_refused():
    headers = b"Content-Transfer-Encoding: base64\r\n"
    assert "base64" in refused(multipart(part("request", b"e30=", headers))).msg


def test_the_request_part_is_strict_json():
    assert refused(multipart(part("request", b'{"a": NaN}'))).type == "json_invalid"
