"""The pixels torch reads are the picture's, however Pillow holds them, and outlive it."""

import gc

import numpy as np
import pytest
import torch
from PIL import Image

from models_qwen3_5.pixels import digest_of, pixels_of

# Width and height; the last is more than one of Pillow's blocks of memory.
SIZES = {"one-pixel": (1, 1), "odd": (37, 5), "screen": (1920, 1080), "blocks": (3000, 2100)}


def noise(width, height):
    return np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8)


@pytest.mark.parametrize("size", SIZES.values(), ids=SIZES)
@pytest.mark.parametrize("is_kept", [False, True])
def test_pixels_are_the_pictures(size, is_kept):
    values = noise(*size)
    found = pixels_of(Image.fromarray(values), is_kept=is_kept)
    assert found.is_contiguous()
    assert (found[..., :3].numpy() == values).all()


@pytest.mark.parametrize("is_kept", [False, True])
def test_without_arrow_they_are_the_same(is_kept, monkeypatch):
    values = noise(37, 5)
    monkeypatch.delattr(Image.Image, "__arrow_c_array__", raising=False)
    assert (pixels_of(Image.fromarray(values), is_kept=is_kept)[..., :3].numpy() == values).all()


def test_pixels_outlive_their_picture():
    values = noise(640, 480)
    picture = Image.fromarray(values).copy()
    pixels = pixels_of(picture)
    del picture
    gc.collect()
    others = [Image.new("RGB", (640, 480), (n, n, n)) for n in range(20)]
    assert (pixels[..., :3].numpy() == values).all()
    assert len(others) == 20


def test_kept_pixels_do_not_follow_the_picture():
    picture = Image.new("RGB", (4, 4), (1, 2, 3))
    pixels = pixels_of(picture, is_kept=True)
    picture.paste((9, 9, 9), (0, 0, 4, 4))
    assert pixels[0, 0, :3].tolist() == [1, 2, 3]


@pytest.mark.parametrize("length", [0, 1, 2**20, 2**20 + 1, 5 * 2**20 + 7])
def test_a_digest_tells_names_and_every_byte_apart(length):
    values = torch.zeros(length, dtype=torch.uint8)
    first = digest_of(b"a", values)
    assert first == digest_of(b"a", values.clone())
    assert first != digest_of(b"b", values)
    for place in {0, length // 2, length - 1} if length else ():
        changed = values.clone()
        changed[place] = 1
        assert digest_of(b"a", changed) != first
