"""The parsed request: built once at the edge, so that models never see raw bytes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import groupby, takewhile
from types import MappingProxyType
from typing import Any

from system1_core.errors import MISSING, InvalidRequest, abridged

EMPTY: Mapping[str, Any] = MappingProxyType({})
QUESTION_TYPES = ("choice", "score", "noul")


def json_text(value: Any) -> str:
    """A string as it is, anything else as JSON with ", " and ": ", order kept, no ASCII escapes."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """One encoded image; `format` is read from the bytes ("png" or "jpeg", never the claim)."""

    placeholder: str
    data: bytes
    format: str


def placeholder_pattern(placeholders: Iterable[str]) -> re.Pattern[str]:
    """Finds any of `placeholders`, of several at one position the longest; none: nothing.

    Names are a client's: what several begin with stands once, so that a position of the text costs
    no more than the longest name, whatever the names are.
    """
    names = sorted(set(placeholders))
    return re.compile(_any_of(names) if names else r"(?!)")


def _any_of(names: list[str]) -> str:
    """A pattern of sorted names, none of them empty."""
    parts = []
    for _, alike in groupby(names, key=lambda name: name[:1]):
        group = list(alike)
        # Sorted: what the first and the last begin with, all do.
        pairs = zip(group[0], group[-1], strict=False)
        start = group[0][: sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))]
        ends = [name[len(start) :] for name in group if name != start]
        # An end that may lack is tried first: the longest name counts.
        tail = f"(?:{_any_of(ends)}){'?' * (len(ends) < len(group))}" if ends else ""
        parts.append(re.escape(start) + tail)
    return "|".join(parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One typed question.

    `criteria` keeps the request's own JSON value and order: a choice's object (option name to
    entry or None), a score's list of levels (lowest first), a noul's object with "true" and
    "false" (either may lack) or None. `extra` holds fields the protocol does not know.
    """

    id: str
    type: str
    instructions: Any = None
    criteria: Any = None
    extra: Mapping[str, Any] = field(default_factory=lambda: EMPTY)

    @property
    def options(self) -> tuple[str, ...]:
        """What the answer's probabilities are keyed by, in request order."""
        if self.type == "noul":
            return ("false", "true")
        if self.type == "score":
            return tuple(str(level) for level in range(len(self.criteria)))
        return tuple(self.criteria)

    def invalid(
        self, msg: str, *path: str | int, type: str = "value_error", input: Any = MISSING
    ) -> InvalidRequest:
        """A 422 at this question; `path` goes below its type (for instance "criteria", 3)."""
        loc = ("questions", self.id, self.type, *path)
        return InvalidRequest.at(loc, f"question {abridged(self.id)!r}: {msg}", type, input)


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One state and its questions, as a dialect parsed them.

    `model` is the name the client asked for (None when absent). `images` maps the placeholder,
    as it stands in the text, to its image, in the order of first mention. `num_bytes` is the size
    of the body, by which the engine decides whether to prepare off the event loop.
    """

    state: Any
    questions: tuple[Question, ...]
    model: str | None = None
    images: Mapping[str, Image] = field(default_factory=lambda: EMPTY)
    extra: Mapping[str, Any] = field(default_factory=lambda: EMPTY)
    num_bytes: int = 0
