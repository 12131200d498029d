"""What the model sees of a request's images: one picture, one numbered panel, or video frames."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from PIL import Image as PIL

from models_omnijev.limits import LIMITS
from models_omnijev.panel import compose_panel
from models_omnijev.questions import Video
from models_qwen3_5.config import VisionConfig
from models_qwen3_5.images import (
    ImageLimits,
    ImageRefused,
    ImageSettings,
    PreparedImage,
    decode_images,
    each_in_order,
    image_size,
    num_tokens_of,
    prepare_image,
    read_image_settings,
)
from system1_core.errors import CheckpointError, InvalidRequest
from system1_core.request import Image

# The original overrides what its saved processor config says; another budget moves answers.
MAX_PIXELS = 768 * 28 * 28
_DECODED = ImageLimits(
    max_bytes=LIMITS.image_bytes,
    max_side=LIMITS.image_side,
    max_pixels=LIMITS.image_side**2,
)


@dataclass(frozen=True, slots=True)
class Pictures:
    """Prepared pictures, and the parts of the user's turn that stand before the instructions."""

    images: tuple[PreparedImage, ...]
    content: tuple[Mapping[str, Any], ...]


def load_settings(folder: Path, vision: VisionConfig) -> ImageSettings:
    """The image processor of a checkpoint with the budget the model was trained for.

    Raises CheckpointError where it does not cut the patches that the tower takes.
    """
    settings = replace(read_image_settings(folder), max_pixels=MAX_PIXELS)
    found = settings.patch_size, settings.merge_size
    if found != (vision.patch_size, vision.spatial_merge_size):
        raise CheckpointError(
            f"{folder}: the image processor cuts patches of {found}, the base has "
            f"{(vision.patch_size, vision.spatial_merge_size)}; name the base of this checkpoint"
        )
    return settings


def make_pictures(
    images: Mapping[str, Image], video: Video | None, settings: ImageSettings
) -> Pictures:
    """What the model sees of these images. Raises InvalidRequest that names the image."""
    if not images:
        raise InvalidRequest.at(("state",), "OmniJev judges images: send one at least", "missing")
    shown = dict(list(images.items())[:1]) if video else images
    _check_sizes(shown)
    if video is not None:
        return _frames(*next(iter(shown.items())), video, settings)
    decoded = _decoded(shown)
    if len(decoded) == 1:
        (image,) = shown.values()
        prepared = prepare_image(decoded[0], settings, image.data)
    else:
        prepared = prepare_image(compose_panel(decoded), settings)
    return Pictures((prepared,), ({"type": "image"},))


def _check_sizes(images: Mapping[str, Image]) -> None:
    """Headers only: nothing is decoded before everything is known to fit."""
    total = 0
    for name, image in images.items():
        try:
            height, width = image_size(image.data, _DECODED)
        except ImageRefused as error:
            raise _refused(name, str(error)) from error
        total += height * width
    if total > LIMITS.pixels:
        msg = f"{len(images)} images of {total} pixels in all, limit {LIMITS.pixels}; shrink them"
        raise InvalidRequest.at(("images",), msg, "too_long")


def _decoded(images: Mapping[str, Image]) -> list[PIL.Image]:
    """The pictures, several at a time."""
    pictures = decode_images([image.data for image in images.values()], _DECODED)
    decoded = []
    for name in images:
        try:
            decoded.append(next(pictures))
        except ImageRefused as error:
            raise _refused(name, str(error)) from error
    return decoded


def _frames(name: str, image: Image, video: Video, settings: ImageSettings) -> Pictures:
    """Every frame is a picture of its own behind its time; the mosaic is only how they travel."""
    rows = -(-video.n_frames // video.cols)
    needed = (min(video.cols, video.n_frames) * video.tile, rows * video.tile)
    height, width = image_size(image.data, _DECODED)
    if width < needed[0] or height < needed[1]:
        raise _refused(
            name,
            f"{width} x {height} pixels, but {video.n_frames} frames of {video.tile} pixels in "
            f"{video.cols} columns need {needed[0]} x {needed[1]}",
        )
    tokens = video.n_frames * num_tokens_of(video.tile, video.tile, settings)
    if tokens > LIMITS.sequence_tokens:
        raise _refused(
            name,
            f"its {video.n_frames} frames take {tokens} tokens, limit {LIMITS.sequence_tokens}; "
            "send fewer or smaller frames",
        )
    (mosaic,) = _decoded({name: image})
    content: list[Mapping[str, Any]] = [_text(_opening(video))]
    for timestamp in video.timestamps:
        content += [_text(f"t={timestamp}s:"), {"type": "image"}]
    frames = each_in_order(lambda box: prepare_image(mosaic.crop(box), settings), _boxes(video))
    return Pictures(tuple(frames), tuple(content))


def _opening(video: Video) -> str:
    return (
        f"A video of {video.duration:.0f} seconds; "
        f"{video.n_frames} frames sampled uniformly in order."
    )


def _boxes(video: Video) -> Sequence[tuple[int, int, int, int]]:
    tile = video.tile
    corners = [divmod(index, video.cols) for index in range(video.n_frames)]
    return [(c * tile, r * tile, (c + 1) * tile, (r + 1) * tile) for r, c in corners]


def _text(text: str) -> Mapping[str, Any]:
    return {"type": "text", "text": text}


def _refused(name: str, why: str) -> InvalidRequest:
    return InvalidRequest.at(("images", name), f"image {name!r}: {why}")
