"""Images in any form clients send them, lifted out of the body of a request.

Afterwards text holds placeholders and `Request.images` maps each to its image, in the order of
first mention: the state first, then each question's instructions and criteria. Only string values
count as mentions, not the keys of objects. Where one placeholder begins another (`pic1`, `pic10`)
the longest that matches at a position is the one mentioned; `split_text` reads text in that way.

| form | placeholder |
|---|---|
| `assets` (inline or multipart) | the asset's own name; each must be mentioned |
| `media` beside the state | `<image:1>`, `<image:2>`, … |
| `images` beside the state | `[image 1]`, `[image 2]`, … |
| `image_url` items of a state array | `<image:` + 32 hex digits of the content's SHA-256 + `>` |

Images of `media` and `images` that no text mentions precede the state: in front of a text state
(on a line of their own, or alone if it is empty), as first items of an array, and an object
becomes an array of the placeholders and the object.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from system1_core.errors import MISSING
from system1_core.request import Image, Question, placeholder_pattern
from system1_core.wire.dialect import Body, RequestLimits
from system1_core.wire.image_bytes import (
    content_placeholder,
    decode_base64,
    decode_either,
    decode_url,
    image_of,
)
from system1_core.wire.problems import Loc, Problems, kind_of
from system1_core.wire.text_size import check_texts

FIELDS = ("assets", "media", "images")
# The official SDK's placeholders have 40.
MAX_NAME_CHARS = 256


def split_text(text: str, images: Mapping[str, Image]) -> list[str | Image]:
    """`text` cut at the placeholders of `images`: strings (never empty) and images in turn."""
    if not images:
        return [text] if text else []
    pieces = re.split(f"({placeholder_pattern(images).pattern})", text)
    return [images.get(piece, piece) if i % 2 else piece for i, piece in enumerate(pieces) if piece]


class Gallery:
    """The images of one body, by placeholder."""

    def __init__(self, limits: RequestLimits, problems: Problems) -> None:
        self._limits = limits
        self._problems = problems
        self._images: dict[str, Image] = {}
        self._assets: list[str] = []
        self._leading: list[str] = []
        self._mentioned: set[str] = set()
        self._count = 0

    def collect(self, body: Body, fields: Mapping[str, Any]) -> None:
        """Take the images out of `assets`, `media`, `images` and the parts of the body."""
        self._collect_assets(fields.get("assets"), body.parts)
        for name in ("media", "images"):
            entries = fields.get(name)
            if isinstance(entries, list):
                for index, entry in enumerate(entries):
                    self._collect_listed(name, index, entry)
            elif entries is not None:
                self._wrong(
                    (name,), f"{name}: must be an array, got {kind_of(entries)}", "list_type"
                )

    def _collect_assets(self, assets: Any, parts: Mapping[str, bytes]) -> None:
        claimed: set[str] = set()
        if isinstance(assets, dict):
            if not assets:
                self._wrong(("assets",), "assets: must not be empty; leave it out", "too_short")
            for name, asset in assets.items():
                self._collect_asset(name, asset, parts, claimed)
        elif assets is not None:
            self._wrong(
                ("assets",), f"assets: must be an object, got {kind_of(assets)}", "dict_type"
            )
        for part in parts:
            if part not in claimed:
                self._wrong(("assets",), f"multipart part {part!r} is claimed by no asset", "part")

    def _collect_asset(
        self, name: str, asset: Any, parts: Mapping[str, bytes], claimed: set[str]
    ) -> None:
        loc: Loc = ("assets", name)
        if not name.strip():
            return self._wrong(loc, "assets: a name must not be empty", "too_short")
        if len(name) > MAX_NAME_CHARS:
            msg = f"assets: a name of {len(name)} characters, limit {MAX_NAME_CHARS}; shorten it"
            return self._wrong(loc, msg, "too_long")
        if not isinstance(asset, dict):
            return self._wrong(loc, f"asset {name!r}: must be an object", "dict_type")
        if asset.get("type") != "image":
            msg = f"asset {name!r}: type must be 'image'"
            return self._wrong((*loc, "type"), msg, "literal_error", asset.get("type", MISSING))
        part = asset.get("part")
        if part is None:
            loc = (*loc, "data_base64")
            content = decode_base64(
                asset.get("data_base64", MISSING), loc, self._problems, self._limits.max_image_bytes
            )
        else:
            loc = (*loc, "part")
            if not isinstance(part, str) or part not in parts:
                msg = f"asset {name!r}: the body has no multipart part of that name"
                return self._wrong(loc, msg, "part", part)
            if part in claimed:
                msg = f"asset {name!r}: part {part!r} is claimed by another asset"
                return self._wrong(loc, msg, "part", part)
            claimed.add(part)
            content = parts[part]
        if self.add(content, name, loc):
            self._assets.append(name)
        return None

    def _collect_listed(self, name: str, index: int, entry: Any) -> None:
        loc: Loc = (name, index)
        placeholder = f"[image {index + 1}]" if name == "images" else f"<image:{index + 1}>"
        if name == "media":
            if not isinstance(entry, dict) or entry.get("type") != "image":
                msg = f"media.{index}: must be an object of type 'image'"
                return self._wrong(loc, msg, "literal_error")
            loc = (*loc, "data")
            entry = entry.get("data", MISSING)
        content = decode_either(entry, loc, self._problems, self._limits.max_image_bytes)
        if self.add(content, placeholder, loc):
            self._leading.append(placeholder)
        return None

    def add(self, content: bytes | None, placeholder: str, loc: Loc) -> bool:
        """Keep one image, if it is one and within the limits; None was a problem already."""
        if content is None:
            return False
        self._count += 1
        if self._count > self._limits.max_images:
            if self._count == self._limits.max_images + 1:
                msg = f"more than {self._limits.max_images} images in a request; send fewer"
                self._wrong(loc, msg, "too_long")
            return False
        if placeholder in self._images and self._images[placeholder].data != content:
            self._wrong(loc, f"two images are called {placeholder!r}", "duplicate")
            return False
        image = image_of(content, placeholder, loc, self._problems, self._limits.max_image_bytes)
        if image is None:
            return False
        self._images[placeholder] = image
        return True

    def add_url(self, url: Any, loc: Loc) -> str:
        """Keep the image of a data URL; returns its placeholder, "" when there was a problem."""
        content = decode_url(url, loc, self._problems, self._limits.max_image_bytes)
        placeholder = content_placeholder(content) if content else ""
        return placeholder if self.add(content, placeholder, loc) else ""

    def lift_items(self, state: Any, loc: Loc) -> Any:
        """`state` with the `image_url` items of a top-level array replaced by placeholders."""
        if not isinstance(state, list) or not any(map(_is_image_item, state)):
            return state
        items = []
        for index, item in enumerate(state):
            if _is_image_item(item):
                url = item.get("image_url", MISSING)
                where: Loc = (*loc, index, "image_url")
                if isinstance(url, dict):
                    url, where = url.get("url", MISSING), (*where, "url")
                item = self.add_url(url, where)
            items.append(item)
        return items

    def place(
        self, state: Any, questions: Iterable[Question], is_shared: bool = False
    ) -> tuple[Any, dict[str, Image]]:
        """The state with unmentioned leading images in front, and the images by first mention.

        `is_shared` says that other states of a batch use this gallery too.
        """
        if not self._images:
            return state, {}
        # Looking for many names in many megabytes would hold up all other clients.
        check_texts(state, questions, self._limits)
        pattern = placeholder_pattern(self._images)
        mentions: dict[str, None] = {}
        for text in _texts(state, questions):
            mentions.update(dict.fromkeys(pattern.findall(text)))
        leading = [] if is_shared else [name for name in self._leading if name not in mentions]
        self._mentioned.update(mentions)
        order = [*leading, *mentions]
        return _preceded(state, leading), {name: self._images[name] for name in order}

    def check_mentions(self) -> None:
        """Note the assets that no text mentions; call it after `place`."""
        for name in self._assets:
            if name not in self._mentioned:
                msg = f"asset {name!r}: neither the state nor a question mentions it"
                self._wrong(("assets", name), msg, "unreferenced")

    def _wrong(self, loc: Loc, msg: str, type: str, input: Any = MISSING) -> None:
        self._problems.add(loc, msg, type, input)


def _is_image_item(item: Any) -> bool:
    return isinstance(item, dict) and item.get("type") == "image_url"


def _texts(state: Any, questions: Iterable[Question]) -> Iterator[str]:
    yield from _strings(state)
    for question in questions:
        yield from _strings(question.instructions)
        yield from _strings(question.criteria)


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for member in value.values():
            yield from _strings(member)
    elif isinstance(value, list):
        for item in value:
            yield from _strings(item)


def _preceded(state: Any, leading: list[str]) -> Any:
    if not leading:
        return state
    if isinstance(state, str):
        return "".join(leading) + ("\n" + state if state else "")
    if isinstance(state, list):
        return [*leading, *state]
    return [*leading, state]
