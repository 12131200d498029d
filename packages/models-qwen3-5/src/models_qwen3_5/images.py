"""From an encoded image to the patches the vision tower takes."""

from __future__ import annotations

import io
import json
import math
import os
import struct
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import InitVar, dataclass, field
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeVar

import torch
from PIL import Image, UnidentifiedImageError
from torch import Tensor

from models_qwen3_5.image_pieces import excess_of
from models_qwen3_5.pixels import digest_of, pixels_of
from system1_core.errors import CheckpointError
from system1_torch.ops.image_patches import image_patches

MAX_ASPECT = 200
_FORMATS = ("PNG", "JPEG")
# Of all requests together: more would only hold more pictures in memory.
_MAX_DECODERS = 16
_Result = TypeVar("_Result")
# A larger picture waits as patches, which are fewer bytes, and no such piece of memory is pinned.
_MAX_DEVICE_PIXELS = 16 * 2**20


class ImageRefused(ValueError):
    """An image that no answer can be given about; says why, and what would be accepted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageLimits:
    """What is decoded at all; checked on the header, before any pixel.

    Phones put a second picture (depth, brightness) behind the first of a JPEG file; the first is
    read, unless `single_picture` refuses such files. Animated files are always refused.
    """

    max_bytes: int = 16 * 2**20
    max_side: int = 16_384
    # 64 megapixels decode to 192 MiB.
    max_pixels: int = 64 * 2**20
    single_picture: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageSettings:
    """The image processor's settings; pixels in all, of the resized image.

    With `on_device` the executor resizes and cuts: prepared images carry their pixels.
    """

    min_pixels: int = 65_536
    max_pixels: int = 16_777_216
    patch_size: int = 16
    merge_size: int = 2
    on_device: bool = False

    @property
    def factor(self) -> int:
        """Both sides of a resized image are multiples of this."""
        return self.patch_size * self.merge_size


@dataclass(frozen=True, slots=True, eq=False)
class PreparedImage:
    """One image as patches, or as the pixels that the executor makes patches of.

    `patches` [P, 3 * patch^2] uint8: rows by 2x2 block (row-major over blocks and inside), values
    by channel, row, column. Where it is None, `pixels` [H, W, 4] uint8 are red, green, blue and a
    value without meaning, before the resize. `grid` is (rows, columns) in patches; `digest` stands
    for it all, and tells equal pictures in the two forms apart. It is taken of `source`, what the
    values were made of (a file's bytes, which are few), or of the values themselves.
    """

    patches: Tensor | None
    grid: tuple[int, int]
    merge_size: int = 2
    pixels: Tensor | None = None
    source: InitVar[bytes | None] = None
    digest: bytes = field(init=False)

    def __post_init__(self, source: bytes | None) -> None:
        held = self.pixels if self.patches is None else self.patches
        assert held is not None, "an image has patches or pixels"
        shape = tuple(held.shape) if self.patches is None else ()
        name = repr((self.grid, self.merge_size, *shape, source is None)).encode()
        digest = digest_of(name, held) if source is None else sha256(name + source).digest()
        object.__setattr__(self, "digest", digest)

    @property
    def number(self) -> int:
        """A negative number from 62 bits of the digest: no token id, and the image's own."""
        return -1 - (int.from_bytes(self.digest[:8], "big") >> 2)

    @property
    def merged_grid(self) -> tuple[int, int]:
        return self.grid[0] // self.merge_size, self.grid[1] // self.merge_size

    @property
    def num_patches(self) -> int:
        rows, columns = self.grid
        return rows * columns

    @property
    def num_tokens(self) -> int:
        rows, columns = self.merged_grid
        return rows * columns


def read_image_settings(folder: Path) -> ImageSettings:
    """The settings beside a checkpoint: `preprocessor_config.json` or `processor_config.json`.

    Raises CheckpointError where neither is there, or one asks for another preparation.
    """
    for name in ("preprocessor_config.json", "processor_config.json"):
        file = folder / name
        if file.is_file():
            break
    else:
        raise CheckpointError(
            f"{folder}: found neither preprocessor_config.json nor processor_config.json; "
            "fetch it from the checkpoint's repository"
        )
    try:
        values = json.loads(file.read_text(encoding="utf-8"))
        values = values.get("image_processor", values)
        size = values.get("size", {})
        settings = ImageSettings(
            min_pixels=_pixels(size.get("shortest_edge", values.get("min_pixels"))),
            max_pixels=_pixels(size.get("longest_edge", values.get("max_pixels"))),
            patch_size=_pixels(values.get("patch_size")),
            merge_size=_pixels(values.get("merge_size")),
        )
        means = [*values.get("image_mean", [0.5]), *values.get("image_std", [0.5])]
        if any(mean != 0.5 for mean in means):
            raise ValueError(f"image_mean and image_std {means}, expected 0.5 throughout")
        if values.get("resample", 3) != 3:
            raise ValueError(f"resample {values['resample']}, expected 3, bicubic")
    except (ValueError, AttributeError, TypeError) as error:
        raise CheckpointError(f"{file}: {error}; fetch the file again") from error
    return settings


def _pixels(value: Any) -> int:
    if type(value) is not int or value < 1:
        raise ValueError(f"a size is {value!r}, expected a positive integer")
    return value


def image_size(data: bytes, limits: ImageLimits | None = None) -> tuple[int, int]:
    """Height and width from a file's header, no pixel decoded.

    Raises ImageRefused for another format, more than one frame, or a size over a limit.
    """
    with _opened(data, limits or ImageLimits()) as image:
        return image.height, image.width


def decode_image(data: bytes, limits: ImageLimits | None = None) -> Image.Image:
    """The RGB picture in a PNG or JPEG file, as Pillow converts it: alpha is dropped, EXIF
    orientation is not applied.

    Raises ImageRefused for anything truncated, animated, over a limit or of another format.
    """
    with _opened(data, limits or ImageLimits()) as image:
        image.load()
        # Changes no pixel, and Pillow would warn that it cannot keep a palette's alpha.
        image.info.pop("transparency", None)
        # Converting what is RGB already would copy it: 1.2 ms for 1920 x 1080.
        return image if image.mode == "RGB" else image.convert("RGB")


@contextmanager
def _opened(data: bytes, limits: ImageLimits) -> Iterator[Image.Image]:
    """The open file, within its limits; what Pillow raises inside becomes ImageRefused."""
    if len(data) > limits.max_bytes:
        raise ImageRefused(f"{len(data)} bytes, limit {limits.max_bytes}; send a smaller file")
    if excess := excess_of(data):
        raise ImageRefused(excess)
    try:
        with Image.open(io.BytesIO(data), formats=_FORMATS) as image:
            _check_size(image, limits)
            frames = getattr(image, "n_frames", 1)
            if frames > 1 and (image.format != "MPO" or limits.single_picture):
                raise ImageRefused(f"{frames} frames, limit 1; send a single frame")
            yield image
    except ImageRefused:
        raise
    except UnidentifiedImageError as error:
        raise ImageRefused("neither a PNG nor a JPEG file; convert it") from error
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise ImageRefused(
            f"more pixels than the limit, {limits.max_pixels}; send a smaller image"
        ) from error
    except (OSError, ValueError, SyntaxError, EOFError, struct.error, IndexError) as error:
        raise ImageRefused(f"not a sound image file: {error}; encode it again") from error


def _check_size(image: Image.Image, limits: ImageLimits) -> None:
    width, height = image.size
    if max(width, height) > limits.max_side:
        raise ImageRefused(
            f"{width} x {height} pixels, limit {limits.max_side} a side; send a smaller image"
        )
    if width * height > limits.max_pixels:
        raise ImageRefused(
            f"{width} x {height} = {width * height} pixels, limit {limits.max_pixels}; "
            "send a smaller image"
        )
    _check_aspect(width, height)


def _check_aspect(width: int, height: int) -> None:
    if max(width, height) > MAX_ASPECT * min(width, height):
        raise ImageRefused(
            f"{width} x {height} pixels: a side is over {MAX_ASPECT} times the other; crop it"
        )


def smart_resize(height: int, width: int, settings: ImageSettings) -> tuple[int, int]:
    """The size (height, width) an image is resized to: multiples of the factor, about the same
    aspect, between the least and the most pixels.

    Raises ImageRefused where one side is more than 200 times the other.
    """
    _check_aspect(width, height)
    factor = settings.factor
    rows, columns = (round(side / factor) * factor for side in (height, width))
    if rows * columns > settings.max_pixels:
        shrink = math.sqrt(height * width / settings.max_pixels)
        rows, columns = (
            max(factor, math.floor(side / shrink / factor) * factor) for side in (height, width)
        )
    elif rows * columns < settings.min_pixels:
        grow = math.sqrt(settings.min_pixels / (height * width))
        rows, columns = (math.ceil(side * grow / factor) * factor for side in (height, width))
    return rows, columns


def num_tokens_of(height: int, width: int, settings: ImageSettings) -> int:
    """Tokens an image of this size takes."""
    rows, columns = smart_resize(height, width, settings)
    return rows * columns // settings.factor**2


def prepare_image(
    image: Image.Image, settings: ImageSettings, source: bytes | None = None
) -> PreparedImage:
    """Resize an RGB picture and cut it into patches, or leave both to the device.

    `source` is what the picture alone was made of: see `PreparedImage`.
    """
    rows, columns = smart_resize(image.height, image.width, settings)
    patch, merge = settings.patch_size, settings.merge_size
    grid = rows // patch, columns // patch
    if settings.on_device and image.height * image.width <= _MAX_DEVICE_PIXELS:
        return PreparedImage(None, grid, merge, pixels_of(image, is_kept=True), source)
    patches = image_patches(pixels_of(image), rows, columns, patch, merge)
    return PreparedImage(patches, grid, merge, source=source)


def prepare_images(
    files: Sequence[bytes], settings: ImageSettings, limits: ImageLimits | None = None
) -> Iterator[PreparedImage]:
    """Decode and prepare files, several at a time; yields them in order.

    Raises ImageRefused when it comes to a file that is refused.
    """

    def prepare(data: bytes) -> PreparedImage:
        return prepare_image(decode_image(data, limits), settings, data)

    return each_in_order(prepare, files)


def decode_images(
    files: Sequence[bytes], limits: ImageLimits | None = None
) -> Iterator[Image.Image]:
    """As `decode_image`, several files at a time; yields the pictures in order."""
    return each_in_order(lambda data: decode_image(data, limits), files)


def each_in_order(work: Callable[[Any], _Result], items: Sequence[Any]) -> Iterator[_Result]:
    """`work` on each item, on the shared threads where there are several; Pillow leaves the
    interpreter free while it decodes."""
    if len(items) < 2:
        yield from map(work, items)
        return
    running = [_decoders().submit(work, item) for item in items]
    try:
        for each in running:
            yield each.result()
    finally:
        # Behind an error nobody waits for the rest.
        for each in running:
            each.cancel()


@cache
def _decoders() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(min(_MAX_DECODERS, os.cpu_count() or 1), "decode")


def pixel_values(
    patches: Tensor, temporal_patch_size: int = 2, dtype: torch.dtype = torch.float32
) -> Tensor:
    """Patch rows as the tower's first product reads them, -1 to 1.

    patches [P, 3 * patch^2] uint8 to [P, 3 * time * patch^2] in `dtype`: a still image is repeated
    in time. The one division, in fp32, is bit-equal to the reference; dividing by 255 first is not.
    """
    values = ((patches.float() - 127.5) / 127.5).to(dtype)
    channels = values.unflatten(1, (3, 1, -1))
    return channels.expand(-1, -1, temporal_patch_size, -1).flatten(1)
