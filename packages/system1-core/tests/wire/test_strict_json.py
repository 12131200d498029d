import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from system1_core.errors import InvalidRequest
from system1_core.wire.strict_json import dumps, loads

JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=30,
)


def refused(raw: bytes, max_depth: int = 64) -> str:
    with pytest.raises(InvalidRequest) as raised:
        loads(raw, max_depth)
    (problem,) = raised.value.problems
    assert problem.type == "json_invalid"
    assert problem.loc[0] == "body"
    return problem.msg


@given(JSON_VALUES)
def test_what_stdlib_writes_is_read_back_equal(value):
    assert loads(json.dumps(value).encode(), 1000) == json.loads(json.dumps(value))


@given(JSON_VALUES)
def test_what_dumps_writes_is_read_back_equal(value):
    assert loads(dumps(value), 1000) == json.loads(json.dumps(value))


@given(st.binary() | st.text().map(lambda text: text.encode("utf-8", "surrogatepass")))
def test_any_bytes_give_a_value_or_invalid_request(raw):
    with suppress(InvalidRequest):
        dumps(loads(raw, 8))


@given(st.text(alphabet='\\"ud8cDC3f[]{},:01e ', max_size=40))
def test_text_made_of_json_pieces_gives_a_value_or_invalid_request(text):
    try:
        value = loads(text.encode(), 3)
    except InvalidRequest:
        return
    assert value == json.loads(text)
    dumps(value).decode("utf-8")
    assert "\\ud" not in repr(value)


@given(st.text(st.sampled_from(["\ud83d", "\ude00", "a", "\\", '"']), max_size=8))
def test_escaped_surrogates_pass_exactly_when_they_pair(text):
    raw = json.dumps(text).encode()
    try:
        value = loads(raw, 8)
    except InvalidRequest:
        with pytest.raises(UnicodeEncodeError):
            json.loads(raw).encode()
    else:
        assert value.encode() == json.loads(raw).encode()


@pytest.mark.parametrize("raw", [b"", b"  \n"])
def test_an_empty_body_is_refused(raw):
    assert "empty" in refused(raw)


def test_a_syntax_error_names_its_position():
    with pytest.raises(InvalidRequest) as raised:
        loads(b'{"a": 1,}', 8)
    assert raised.value.problems[0].loc == ("body", 8)


@pytest.mark.parametrize("raw", [b'{"a": "\xff"}', b'"\xed\xa0\x80"', "[1]".encode("utf-16")])
def test_bytes_that_are_not_utf8_are_refused(raw):
    refused(raw)


def test_a_byte_order_mark_is_refused_by_name():
    assert "byte order mark" in refused(b"\xef\xbb\xbf{}")


def test_a_duplicate_key_is_named():
    assert "'b'" in refused(b'[{"a": 1, "b": 1, "b": 1}]')


def test_keys_that_differ_only_by_escapes_are_duplicates():
    assert "'a'" in refused(rb'{"a": 1, "\u0061": 2}')


@pytest.mark.parametrize("name", ["NaN", "Infinity", "-Infinity"])
def test_numbers_that_are_none_are_refused(name):
    assert name in refused(f"[{name}]".encode())


@pytest.mark.parametrize("number", ["1e400", "-1e400", "9" * 400 + ".0"])
def test_numbers_out_of_range_are_refused(number):
    assert "range" in refused(number.encode())


def test_integers_are_exact_up_to_the_limit_on_digits():
    assert loads(b"-" + b"9" * 4300, 8) == 1 - 10**4300
    assert "4301 digits" in refused(b"9" * 4301)


def test_a_million_digits_are_refused():
    assert "1000000 digits" in refused(b"1" * 1_000_000)


@pytest.mark.parametrize(
    "text", [r"\ud800", r"\uDC00", r"\ud83d\ud83d\ude00", r"\ud83d\ude00\ude00", r"\ud83d\\ude00"]
)
def test_lone_surrogates_are_refused_in_values_and_keys(text):
    assert "surrogate" in refused(f'["{text}"]'.encode())
    assert "surrogate" in refused(f'{{"{text}": 1}}'.encode())


def test_paired_and_spelled_out_surrogates_pass():
    assert loads(rb'["\ud83d\ude00", "\\ud800", "\\\\ud800"]', 8) == ["😀", r"\ud800", r"\\ud800"]


def test_depth_is_counted_exactly():
    assert loads(b"[" * 8 + b"]" * 8, 8) == [[[[[[[[]]]]]]]]
    assert "8 levels" in refused(b"[" * 9 + b"]" * 9, 8)
    assert "8 levels" in refused(b'{"a":' * 9 + b"1" + b"}" * 9, 8)


def test_brackets_in_strings_and_side_by_side_do_not_count_as_depth():
    text = '[[["\\"[[[[[[", "\\\\", "{{{{{{"]], [], [], [], []]'
    assert loads(text.encode(), 3) == json.loads(text)


@pytest.mark.parametrize("opening", [b"[", b'{"a":', b'[{"a":'])
def test_a_million_brackets_are_refused(opening):
    refused(opening * 1_000_000)
    refused(opening * 1_000_000, max_depth=2_000_000)


@pytest.mark.parametrize("body", [b'"' + b'\\"' * 500_000, b'"' * 500_001, b"[" + b"\\" * 500_000])
def test_a_million_quotes_and_backslashes_are_refused_in_linear_time(body):
    refused(body + b"[" * 100)


def test_too_many_values_are_refused_before_they_are_built():
    assert "limit 1000000" in refused(b"[" + b"{}," * 1_000_000 + b"1]")
    with pytest.raises(InvalidRequest, match="100 values in the body, limit 10"):
        loads(b"[" + b"0," * 98 + b"0]", 8, 10)


def test_commas_in_text_are_not_values():
    assert len(loads(b'["' + b"," * 1000 + b'"]', 8, 10)[0]) == 1000


def test_key_order_is_kept():
    assert list(loads(b'{"z": 1, "a": 2, "m": 3}', 8)) == ["z", "a", "m"]


def test_dumps_is_compact_and_keeps_letters():
    assert dumps({"a": ["é", 1.0]}) == '{"a":["é",1.0]}'.encode()


def test_dumps_refuses_nan():
    with pytest.raises(ValueError):
        dumps(float("nan"))


def test_dumps_escapes_a_lone_surrogate():
    assert json.loads(dumps("\ud800")) == "\ud800"
