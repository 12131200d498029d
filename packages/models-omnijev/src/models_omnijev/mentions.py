"""The placeholders of a request's images, and what the model reads in their place."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from system1_core.request import Image, json_text, placeholder_pattern


class Mentions:
    """The pictures themselves come first in the prompt, in the order of these images.

    So the state loses its placeholders, while a question keeps each as "picture N", N the number
    on the panel. Keys of objects are left as they are.
    """

    def __init__(self, images: Mapping[str, Image]) -> None:
        self._names = {name: f"picture {number}" for number, name in enumerate(images, 1)}
        self._pattern = placeholder_pattern(images)

    def named(self, value: Any) -> Any:
        """`value` with every placeholder in its texts named."""
        if isinstance(value, str):
            return self._pattern.sub(lambda found: self._names[found.group()], value)
        if isinstance(value, list):
            return [self.named(item) for item in value]
        if isinstance(value, dict):
            return {key: self.named(member) for key, member in value.items()}
        return value

    def state_text(self, state: Any) -> str:
        """What is left of the state: "" if it was images only.

        Parts that held nothing but placeholders are left out with their keys; where that leaves
        one item of an array, the item stands for it. White space around the rest is dropped.
        """
        rest = self._without(state)
        return "" if rest is None else json_text(rest).strip()

    def _without(self, value: Any) -> Any:
        """`value` without placeholders, None where nothing else was in it."""
        if isinstance(value, str):
            rest, count = self._pattern.subn("", value)
            return None if count and not rest.strip() else rest
        if isinstance(value, list):
            items = [rest for item in value if (rest := self._kept(item)) is not _GONE]
            if len(items) == len(value):
                return items
            return items[0] if len(items) == 1 else items or None
        if isinstance(value, dict):
            members = {
                key: rest
                for key, member in value.items()
                if (rest := self._kept(member)) is not _GONE
            }
            return members if members or not value else None
        return value

    def _kept(self, value: Any) -> Any:
        """A member's rest, `_GONE` if it was placeholders only; null stays null."""
        if value is None:
            return None
        rest = self._without(value)
        return _GONE if rest is None else rest


_GONE: Any = object()
