"""The parsed request: built once at the edge, so that models never see raw bytes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from system1_core.errors import MISSING, InvalidRequest

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
        return InvalidRequest.at(loc, f"question {self.id!r}: {msg}", type, input)


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
