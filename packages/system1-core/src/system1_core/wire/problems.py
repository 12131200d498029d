"""What is wrong with one body, collected so that a client learns all of it at once."""

from __future__ import annotations

from typing import Any

from system1_core.errors import MISSING, InvalidRequest, Problem

Loc = tuple[str | int, ...]

# A client that sent thousands of mistakes is helped by the first few.
MAX_PROBLEMS = 20

_KIND_OF = {
    type(None): "null",
    bool: "a boolean",
    int: "a number",
    float: "a number",
    str: "a string",
    list: "an array",
    dict: "an object",
}


def kind_of(value: Any) -> str:
    """What a JSON value is called in a message."""
    return _KIND_OF.get(type(value), "a value")


class Problems:
    """Collects problems of one body; `loc` paths are below "body"."""

    __slots__ = ("_found",)

    def __init__(self) -> None:
        self._found: list[Problem] = []

    def __bool__(self) -> bool:
        return bool(self._found)

    def add(self, loc: Loc, msg: str, type: str, input: Any = MISSING) -> None:
        """Note one problem; raises what was found when there are `MAX_PROBLEMS`."""
        self._found.append(Problem(loc=("body", *loc), msg=msg, type=type, input=input))
        if len(self._found) >= MAX_PROBLEMS:
            raise InvalidRequest(self._found)

    def raise_if_any(self) -> None:
        """Raises `InvalidRequest` with everything found so far, if anything was."""
        if self._found:
            raise InvalidRequest(self._found)
