"""What a request shows: the text of a screen, or one picture of it."""

from __future__ import annotations

import binascii
import re
from collections.abc import Iterator, Mapping
from typing import Any

from system1_core.errors import InvalidRequest
from system1_core.request import Image, Request
from system1_core.wire.image_bytes import content_placeholder, format_of

MAX_IMAGE_BYTES = 4 * 2**20
_DATA_URL = re.compile(r"data:image/(png|jpeg);base64,")
_AT_IMAGE = ("state", "image")


def is_picture(state: Any) -> bool:
    """Whether a state is an object of one image and nothing else, sound or not."""
    return isinstance(state, dict) and list(state) == ["image"]


def picture_of(request: Request) -> Image | None:
    """The picture that is the whole state, or None for a state of text.

    It comes as `{"image": data URL}`, or as an image of the request that the state consists of.
    Raises InvalidRequest for text beside an image, for more than one, and for one in a question.
    """
    if request.images:
        return _only_image(request)
    state = request.state
    if isinstance(state, dict) and _is_data_url(state.get("image")):
        if not is_picture(state):
            raise _mixed(f"the state has an image and {len(state) - 1} other fields beside it")
        return image_of_url(state["image"])
    return None


def image_of_url(url: Any) -> Image:
    """The picture in a data URL, its content of the format that the URL claims.

    Raises InvalidRequest for anything else; images are never fetched.
    """
    prefix = _DATA_URL.match(url) if isinstance(url, str) else None
    if prefix is None:
        shown = repr(url[:60]) if isinstance(url, str) else type(url).__name__
        raise InvalidRequest.at(
            _AT_IMAGE,
            f"image is {shown}, expected a data URL that begins with data:image/png;base64, or "
            "data:image/jpeg;base64,",
            "url_invalid",
        )
    text = url[prefix.end() :]
    size = len(text) // 4 * 3
    if size - 2 > MAX_IMAGE_BYTES:
        raise InvalidRequest.at(
            _AT_IMAGE,
            f"image of about {size} bytes, limit {MAX_IMAGE_BYTES}; send a smaller file",
            "too_long",
        )
    try:
        content = binascii.a2b_base64(text, strict_mode=True)
    except ValueError as error:
        raise InvalidRequest.at(
            _AT_IMAGE, f"image is no strict base64: {error}; encode it again", "base64_invalid"
        ) from None
    found = format_of(content)
    if found != prefix[1]:
        raise InvalidRequest.at(
            _AT_IMAGE,
            f"image is said to be {prefix[1]}, its bytes are {found or 'neither png nor jpeg'}; "
            "name the format it has",
            "image_invalid",
        )
    return Image(placeholder=content_placeholder(content), data=content, format=prefix[1])


def _only_image(request: Request) -> Image:
    images = request.images
    if len(images) > 1:
        raise _mixed(f"the request has {len(images)} images")
    (name,) = images
    for question in request.questions:
        if any(name in text for text in _strings([question.instructions, question.criteria])):
            raise question.invalid(
                f"mentions the image {name!r}; the image must be the state, and nothing else",
                type="image_misplaced",
            )
    state = request.state
    if state not in (name, [name], {"image": name}):
        raise _mixed("the state has text and an image")
    return images[name]


def _mixed(found: str) -> InvalidRequest:
    return InvalidRequest.at(
        ("state",),
        f"{found}: this model reads either text or one picture of the screen; send the picture as "
        "the whole state and the task as instructions",
        "image_misplaced",
    )


def _is_data_url(value: Any) -> bool:
    return isinstance(value, str) and value.startswith("data:image/")


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for member in value.values():
            yield from _strings(member)
    elif isinstance(value, list):
        for item in value:
            yield from _strings(item)
