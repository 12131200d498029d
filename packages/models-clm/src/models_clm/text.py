"""The texts that the encoder sees: one for the state of a question, one for each candidate."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from system1_core.request import Question

# What a side of a noul says where its criteria do not describe it.
_DEFAULT_SIDES = {"false": "No. This is false: ", "true": "Yes. This is true: "}
_INDENT = "  "


@dataclass(frozen=True, slots=True)
class Texts:
    """The state text of one question and its candidates' texts, in the order of its options."""

    state: str
    candidates: tuple[str, ...]


def texts_of(state: Any, question: Question) -> Texts:
    """What the encoder reads for one question."""
    return Texts(state_text(state, question.instructions), _CANDIDATES[question.type](question))


def state_text(state: Any, instructions: Any) -> str:
    """State and instructions, a blank line between them where both say something."""
    parts = (to_text(state).strip(), to_text(instructions).strip())
    return "\n\n".join(part for part in parts if part)


def to_text(value: Any) -> str:
    """A JSON value as prose fields: `key: value` parts, `- item` lines, blank lines at the top."""
    if isinstance(value, dict):
        return "\n\n".join(_fields(value, ""))
    return _render(value, "")


def _render(value: Any, indent: str) -> str:
    """`value` as it stands below a key or a dash; scalars take no indent of their own."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        return "\n".join(_fields(value, indent))
    if isinstance(value, list):
        return "\n".join(_entry(f"{indent}-", item, indent) for item in value)
    return str(value)


def _fields(value: Mapping[str, Any], indent: str) -> list[str]:
    return [_entry(f"{indent}{key}:", item, indent) for key, item in value.items()]


def _entry(label: str, value: Any, indent: str) -> str:
    if isinstance(value, dict | list) and value:
        return f"{label}\n{_render(value, indent + _INDENT)}"
    return f"{label} {_render(value, '')}"


def _choice(question: Question) -> tuple[str, ...]:
    """Descriptions; the bare name where there is none (an empty container is a description)."""
    return tuple(
        name if description is None or description == "" else to_text(description)
        for name, description in question.criteria.items()
    )


def _score(question: Question) -> tuple[str, ...]:
    return tuple(to_text(level) for level in question.criteria)


def _noul(question: Question) -> tuple[str, ...]:
    described = question.criteria if isinstance(question.criteria, dict) else {}
    asked = to_text(question.instructions).strip()
    return tuple(_side(side, described.get(side), asked) for side in question.options)


def _side(side: str, description: Any, asked: str) -> str:
    if description is not None and description != "":
        return f"{side}: {to_text(description)}"
    return f"{side}: {_DEFAULT_SIDES[side]}{asked}" if asked else f"{side}: {side}"


_CANDIDATES = {"choice": _choice, "score": _score, "noul": _noul}
