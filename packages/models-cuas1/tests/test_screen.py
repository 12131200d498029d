"""Text or picture, in the protocol's forms; the limits of each; pictures of every odd kind."""

import io
import struct
import zlib

import pytest
from conftest import (
    FIXTURES,
    IMAGE_CASES,
    assert_close,
    body,
    body_of,
    data_url,
    load_of,
    question,
)
from PIL import Image as Picture

from models_cuas1.load import load_processor
from system1_core.errors import InvalidRequest, System1Error, TooLarge
from system1_core.request import Image, Question, Request

SMALL = FIXTURES / "images" / "small.png"
IMAGE = Image(placeholder="pic", data=SMALL.read_bytes(), format="png")
ASKED = (Question(id="q", type="choice", instructions="Go.", criteria={"a": "OK", "b": "Wait"}),)


def request(state, *images, questions=ASKED):
    named = {image.placeholder: image for image in images}
    return Request(state=state, questions=questions, images=named)


def modality(served, *args, **fields):
    return served.answer(request(*args, **fields)).extra["x_modality"]


@pytest.mark.parametrize(
    "state",
    ["pic", ["pic"], {"image": "pic"}],
    ids=["alone", "in an array", "in the original's object"],
)
def test_a_state_that_is_one_image_is_multimodal(served, state):
    assert modality(served, state, IMAGE) == "multimodal"


def test_the_originals_own_form_is_a_picture_in_the_protocol_profile_too(served):
    assert modality(served, {"image": data_url("images/small.png")}) == "multimodal"


def test_all_forms_of_one_picture_give_the_recorded_answer(served):
    case = IMAGE_CASES[0]
    asked = case["request"]["questions"]["q"]
    questions = (Question(id="q", **asked),)
    expected = dict(case["response"]["answers"]["q"]["probabilities"])
    for one in (
        request("pic", IMAGE, questions=questions),
        request(body_of(case)["state"], questions=questions),
    ):
        found = served.answer(one).answers[0].probabilities
        assert_close(dict(found), expected, 5e-4)


@pytest.mark.parametrize("state", ["Screen", {"tree": 1}, ["x"], {"images": "pic"}], ids=str)
def test_any_other_state_is_text(served, state):
    assert modality(served, state) == "text"


@pytest.mark.parametrize(
    "state",
    ["see pic", ["pic", "x"], {"image": "pic", "note": "x"}, {"screen": "pic"}],
    ids=["a sentence", "an array", "a field beside it", "another field"],
)
def test_text_with_an_image_is_refused(served, state):
    with pytest.raises(InvalidRequest, match="either text or one picture"):
        served.answer(request(state, IMAGE))


def test_a_data_url_with_text_beside_it_is_refused(served):
    state = {"image": data_url("images/small.png"), "note": "x"}
    with pytest.raises(InvalidRequest, match="1 other fields"):
        served.answer(request(state))


def test_two_images_are_refused(served):
    other = Image(placeholder="two", data=IMAGE.data, format="png")
    with pytest.raises(InvalidRequest, match="2 images"):
        served.answer(request("pic", IMAGE, other))


@pytest.mark.parametrize("where", ["instructions", "criteria"])
def test_an_image_in_a_question_is_refused(served, where):
    fields = {"instructions": "Go.", "criteria": {"a": "OK"}}
    fields |= (
        {"instructions": "like pic"} if where == "instructions" else {"criteria": {"a": "pic"}}
    )
    questions = (Question(id="q", type="choice", **fields),)
    with pytest.raises(InvalidRequest, match="must be the state"):
        served.answer(request("pic", IMAGE, questions=questions))


@pytest.mark.parametrize(
    ("family", "state", "words"),
    [
        ("cuas1-text", {"image": data_url("images/small.png")}, "the state is an image"),
        ("cuas1-multimodal", "Screen", "the state is text"),
        ("cuas1-multimodal", {"image": "logo.png"}, "expected a data URL"),
    ],
)
def test_what_no_loaded_adapter_reads_is_refused(family, state, words):
    with pytest.raises(InvalidRequest, match=words):
        load_processor(load_of(family)).prepare(request(state))


def test_the_27th_option_has_no_letter(served):
    many = {f"o{i}": None for i in range(27)}
    questions = (Question(id="q", type="choice", criteria=many),)
    for state, images in (("Screen", ()), ("pic", (IMAGE,))):
        with pytest.raises(InvalidRequest, match="27 options, limit 26"):
            served.answer(request(state, *images, questions=questions))


def test_a_text_over_16384_tokens_is_413_and_the_longest_is_not(served):
    def length(state):
        return served.prepare(body(state)).prompts[0].num_tokens

    room = 16_384 - length("7")
    assert length("7" + " 7" * (room // 2) + "7" * (room % 2)) == 16_384
    with pytest.raises(TooLarge, match="16385 tokens"):
        length("7" + " 7" * (room // 2) + "7" * (room % 2 + 1))


def test_a_picture_with_over_4096_tokens_is_422(served):
    state = {"image": data_url("images/small.png")}
    with pytest.raises(InvalidRequest, match="limit 4096"):
        served.prepare(body(state, q=question(instructions="7 " * 3000)))


@pytest.mark.parametrize(
    "fields",
    [
        {"instructions": "x" * 16_385},
        {"criteria": {"a": "x" * 16_385}},
        {"instructions": "x" * 9_000, "criteria": {"a": "y" * 9_000}},
        {"criteria": {"a": "\n" * 9_000}},
    ],
    ids=["goal", "label", "together", "escaped"],
)
def test_words_beside_a_picture_are_at_most_16384_characters(served, fields):
    state = {"image": data_url("images/small.png")}
    with pytest.raises(InvalidRequest, match="limit 16384"):
        served.prepare(body(state, q=question(**fields)))


@pytest.mark.parametrize(
    "token", ["<|image_pad|>", "<|video_pad|>", "<|vision_start|>", "<|vision_end|>"]
)
@pytest.mark.parametrize("place", ["goal", "label", "key"])
def test_media_tokens_beside_a_picture_are_refused(served, token, place):
    fields = {
        "goal": {"instructions": f"see {token}"},
        "label": {"criteria": {"a": f"x {token}"}},
        "key": {"criteria": {token: None}},
    }
    state = {"image": data_url("images/small.png")}
    with pytest.raises(InvalidRequest, match="stands for an image"):
        served.prepare(body(state, q=question(**fields[place])))


def encoded(picture, format="PNG", **options):
    buffer = io.BytesIO()
    picture.save(buffer, format, **options)
    return buffer.getvalue()


def bomb(width, height):
    """A PNG whose header promises more pixels than it holds."""
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = b""
    for kind, content in ((b"IHDR", header), (b"IDAT", zlib.compress(b"")), (b"IEND", b"")):
        check = struct.pack(">I", zlib.crc32(kind + content))
        chunks += struct.pack(">I", len(content)) + kind + content + check
    return b"\x89PNG\r\n\x1a\n" + chunks


def white(*size, mode="RGB"):
    return Picture.new(mode, size, "white")


REFUSED = {
    "truncated": SMALL.read_bytes()[:-40],
    "signature only": b"\x89PNG\r\n\x1a\n",
    "bomb": bomb(60_000, 60_000),
    "a side of 2049": encoded(white(2049, 16)),
    "over 1,048,576 pixels": encoded(white(1025, 1024)),
    "201 to 1": encoded(white(1005, 5)),
    "animated": encoded(
        white(32, 32), save_all=True, append_images=[Picture.new("RGB", (32, 32), "black")]
    ),
    "jpeg with two pictures": encoded(
        white(32, 32), "MPO", save_all=True, append_images=[white(32, 32)]
    ),
}
ACCEPTED = {
    "1 x 1": encoded(white(1, 1)),
    "2048 x 512": encoded(white(2048, 512)),
    "1024 x 1024": encoded(white(1024, 1024)),
    "200 to 1": encoded(white(1000, 5)),
    "CMYK": encoded(Picture.new("CMYK", (40, 40)), "JPEG"),
    "grey": encoded(white(40, 40, mode="L")),
    "16 bit": encoded(Picture.new("I;16", (40, 40), 300)),
    "EXIF-rotated": encoded(white(40, 60), "JPEG", exif=b"Exif\0\0MM\0*\0\0\0\x08\0\x01\x01\x12\0"
                            b"\x03\0\0\0\x01\0\x06\0\0\0\0\0\0"),
}  # fmt: skip


def shown(served, data):
    mime = "image/jpeg" if data.startswith(b"\xff\xd8") else "image/png"
    return served.prepare(body({"image": data_url(data, mime)}))


@pytest.mark.parametrize("data", REFUSED.values(), ids=REFUSED.keys())
def test_a_hostile_picture_is_422(served, data):
    with pytest.raises(System1Error) as caught:
        shown(served, data)
    assert caught.value.status == 422
    assert "image" in caught.value.message


@pytest.mark.parametrize("data", ACCEPTED.values(), ids=ACCEPTED.keys())
def test_an_odd_but_sound_picture_is_shown(served, data):
    (prompt,) = shown(served, data).prompts
    assert 64 <= prompt.images[0].image.num_tokens <= 1152


def test_16_bit_grey_is_clamped_and_not_scaled(served):
    (prompt,) = shown(served, ACCEPTED["16 bit"]).prompts
    assert prompt.images[0].image.patches.unique().tolist() == [255]


def test_a_rotated_picture_is_shown_as_it_is_stored(served):
    (prompt,) = shown(served, ACCEPTED["EXIF-rotated"]).prompts
    rows, columns = prompt.images[0].image.grid
    assert rows > columns


def test_a_picture_over_4_mib_is_refused_before_it_is_decoded(served):
    large = Image(placeholder="pic", data=IMAGE.data + b"\0" * (4 * 2**20), format="png")
    with pytest.raises(InvalidRequest, match="limit 4194304"):
        served.answer(request("pic", large))


def test_a_picture_is_refused_before_any_question_runs(served):
    """Both questions are checked although only the second is wrong."""
    state = {"image": data_url("images/small.png")}
    with pytest.raises(InvalidRequest, match="'second'"):
        served.prepare(body(state, first=question(), second=question(instructions="7 " * 3000)))
