"""Hostile and unusual images: each has a defined outcome."""

import io
import zlib

import pytest
from conftest import data_url, image_bytes
from PIL import Image

from models_omnijev.limits import LIMITS
from system1_core.errors import InvalidRequest

NOUL = {"q": {"type": "noul", "instructions": "It is dark."}}
GREY = Image.new("RGB", (40, 30), (90, 90, 90))


def encoded(image, kind="PNG", **options):
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def noul(served, *images, **state):
    state["images"] = [data_url(image) for image in images]
    return served.ask({"state": state, "questions": NOUL})


def animated():
    return encoded(GREY, save_all=True, append_images=[Image.new("RGB", (40, 30))])


def bomb():
    """A header that claims more pixels than the limit, over hardly any bytes."""
    content = bytearray(encoded(Image.new("1", (8, 8))))
    content[16:24] = (100_000).to_bytes(4, "big") * 2
    content[29:33] = zlib.crc32(content[12:29]).to_bytes(4, "big")
    return bytes(content)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (image_bytes("pat_64x48.png")[:200], "not a sound image"),
        (image_bytes("shapes_320x180.jpg")[:900], "not a sound image"),
        (encoded(GREY)[:20] + bytes(50), ""),
        (bomb(), "limit"),
        (animated(), "frames, limit 1"),
        (encoded(Image.new("RGB", (4097, 1000))), "limit 4096"),
        (encoded(Image.new("RGB", (2001, 10))), "200 times"),
    ],
    ids=["cut png", "cut jpeg", "broken header", "bomb", "animated", "too wide", "too thin"],
)
def test_refused(served, content, why):
    with pytest.raises(InvalidRequest, match=r"images\[0\].*" + why):
        noul(served, content)
    with pytest.raises(InvalidRequest, match=r"images\[1\].*" + why):
        noul(served, encoded(GREY), content)


@pytest.mark.parametrize(
    "content",
    [
        encoded(GREY.convert("CMYK"), "JPEG"),
        encoded(Image.new("I;16", (40, 30), 30_000)),
        encoded(GREY.convert("LA")),
        encoded(Image.new("RGB", (1, 1))),
        encoded(Image.new("RGB", (2000, 10))),
    ],
    ids=["cmyk", "16 bit", "grey with alpha", "1x1", "200 to 1"],
)
def test_answered(served, content):
    assert 0 <= noul(served, content)["answers"]["q"]["noul"] <= 1


def test_exif_orientation_is_not_applied(served):
    image = Image.open(io.BytesIO(image_bytes("shapes_320x180.jpg")))
    turned = Image.Exif()
    turned[0x0112] = 6
    plain = encoded(image, "JPEG", quality=90)
    marked = encoded(image, "JPEG", quality=90, exif=turned)
    assert noul(served, marked) == noul(served, plain)


def test_alpha_is_dropped_not_blended(served):
    picture = Image.open(io.BytesIO(image_bytes("pat_64x48.png"))).convert("RGB")
    clear = picture.copy()
    clear.putalpha(7)
    assert noul(served, encoded(clear)) == noul(served, encoded(picture))


def test_all_images_together_have_a_limit_of_pixels(served, monkeypatch):
    large = encoded(Image.new("1", (4096, 4096)))
    with pytest.raises(InvalidRequest, match=f"limit {LIMITS.pixels}"):
        noul(served, *[large] * 5)


def test_the_budget_is_the_originals_not_the_saved_one(served):
    assert served.processor.settings.max_pixels == 602_112


def test_a_saved_frame_order_of_a_video_must_fit_its_mosaic(served):
    video = {"n_frames": 4, "cols": 2, "tile": 97, "timestamps": [0, 1, 2, 3], "duration": 4}
    with pytest.raises(InvalidRequest, match="need 194 x 194"):
        noul(served, image_bytes("mosaic_2x2.jpg"), video=video)


@pytest.mark.parametrize(
    "change",
    [
        {"n_frames": 0},
        {"n_frames": 65},
        {"n_frames": 4.0},
        {"cols": None},
        {"tile": "96"},
        {"timestamps": [0, 1, 2]},
        {"timestamps": ["0", "1", "2", "3"]},
        {"duration": "4"},
        {"duration": True},
    ],
)
def test_a_video_that_is_not_described_is_refused(served, change):
    video = {"n_frames": 4, "cols": 2, "tile": 96, "timestamps": [0, 1, 2, 3], "duration": 4}
    with pytest.raises(InvalidRequest, match=next(iter(change))):
        noul(served, image_bytes("mosaic_2x2.jpg"), video=video | change)


def test_a_video_of_too_many_tokens_is_refused_before_it_is_decoded(served):
    mosaic = encoded(Image.new("1", (4096, 4096)))
    video = {
        "n_frames": 64, "cols": 8, "tile": 512, "timestamps": list(range(64)), "duration": 64,
    }  # fmt: skip
    with pytest.raises(InvalidRequest, match="limit 8192"):
        noul(served, mosaic, video=video)


def test_only_the_mosaic_of_a_video_counts(served):
    video = {"n_frames": 4, "cols": 2, "tile": 96, "timestamps": [0, 1, 2, 3], "duration": 4}
    mosaic = image_bytes("mosaic_2x2.jpg")
    alone = noul(served, mosaic, video=video)
    assert noul(served, mosaic, encoded(GREY), video=video) == alone
    assert noul(served, mosaic, video={}) != alone
