"""Several pictures as one numbered panel, as the model was trained on them."""

from __future__ import annotations

import io
from collections.abc import Sequence

from PIL import Image, ImageDraw, ImageFont

MAX_SIDE = 448
BORDER = 6
LABEL_HEIGHT = 22
_GROUND = (32, 32, 32)
_JPEG_QUALITY = 88


def compose_panel(images: Sequence[Image.Image]) -> Image.Image:
    """The panel of RGB pictures, which are shrunk where needed, as it looks behind a JPEG.

    The numbers are in Pillow's default font, so pixels depend on Pillow's version.
    """
    file = io.BytesIO()
    draw_panel(images).save(file, "JPEG", quality=_JPEG_QUALITY)
    with Image.open(file) as panel:
        return panel.convert("RGB")


def draw_panel(images: Sequence[Image.Image]) -> Image.Image:
    """The panel before it is compressed: pictures row by row, centred in cells of one size."""
    shrunken = [_shrunken(image) for image in images]
    columns, rows = _grid(len(shrunken))
    width = max(image.width for image in shrunken)
    height = max(image.height for image in shrunken)
    size = (
        columns * width + (columns + 1) * BORDER,
        rows * (height + LABEL_HEIGHT) + (rows + 1) * BORDER,
    )
    panel = Image.new("RGB", size, _GROUND)
    draw = ImageDraw.Draw(panel)
    font = ImageFont.load_default()
    for index, image in enumerate(shrunken):
        row, column = divmod(index, columns)
        x = BORDER + column * (width + BORDER)
        y = BORDER + row * (height + LABEL_HEIGHT + BORDER)
        draw.text((x + 2, y + 4), str(index + 1), fill=(255, 255, 255), font=font)
        centre = (x + (width - image.width) // 2, y + LABEL_HEIGHT + (height - image.height) // 2)
        panel.paste(image, centre)
    return panel


def _shrunken(image: Image.Image) -> Image.Image:
    if max(image.size) <= MAX_SIDE:
        return image
    image = image.copy()
    image.thumbnail((MAX_SIDE, MAX_SIDE), Image.Resampling.BICUBIC, reducing_gap=2.0)
    return image


def _grid(count: int) -> tuple[int, int]:
    """Columns and rows."""
    if count <= 4:
        return min(count, 2), -(-count // 2)
    return 3, -(-count // 3)
