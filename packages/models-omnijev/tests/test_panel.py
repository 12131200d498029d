"""Several pictures as one panel."""

import io

import numpy as np
import PIL
import pytest
from conftest import CASES, image_bytes
from PIL import Image, features

from models_omnijev.panel import compose_panel, draw_panel

PANELS = [name for name in CASES if name.startswith("panels_")]


def opened(name):
    return Image.open(io.BytesIO(image_bytes(name))).convert("RGB")


@pytest.mark.parametrize("name", PANELS)
def test_recorded_panels_are_the_originals(name):
    panel = compose_panel([opened(image) for image in CASES[name]["state"]["images"]])
    recorded = opened(f"panel_{name}.jpg")
    assert panel.size == recorded.size
    off = np.abs(np.asarray(panel, dtype=int) - np.asarray(recorded))
    if PIL.__version__.startswith("13.0.") and features.check("freetype2"):
        assert off.max() == 0
    # Numbers are drawn in Pillow's default font, which is another in other builds.
    assert off.mean() < 1


@pytest.mark.parametrize(
    ("count", "columns", "rows"),
    [(2, 2, 1), (3, 2, 2), (4, 2, 2), (5, 3, 2), (6, 3, 2), (7, 3, 3)],
)
def test_the_grid_follows_the_count(count, columns, rows):
    panel = draw_panel([Image.new("RGB", (50, 40))] * count)
    assert panel.size == (columns * 50 + (columns + 1) * 6, rows * (40 + 22) + (rows + 1) * 6)


def test_a_picture_is_centred_in_its_cell():
    white = Image.new("RGB", (10, 10), (255, 255, 255))
    panel = draw_panel([white, Image.new("RGB", (50, 40))])
    assert panel.getpixel((6 + 20, 6 + 22 + 15)) == (255, 255, 255)
    assert panel.getpixel((6 + 19, 6 + 22 + 15)) == (32, 32, 32)


def test_only_large_pictures_are_shrunk():
    panel = draw_panel([Image.new("RGB", (896, 100)), Image.new("RGB", (448, 448))])
    assert panel.size == (2 * 448 + 18, 448 + 22 + 12)


def test_composing_leaves_the_pictures_as_they_were():
    image = Image.new("RGB", (900, 900))
    draw_panel([image, image])
    assert image.size == (900, 900)
