"""What the original workers accept of a body; everything else is refused before any work."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from models_cuas1.prompt import LETTERS, MULTIMODAL, TEXT
from system1_core.errors import MISSING, InvalidRequest, TooLarge
from system1_core.request import Question, Request
from system1_core.wire.problems import kind_of

MODEL = "cua-s1-4b-0.2"
MAX_QUESTIONS = {TEXT: 64, MULTIMODAL: 8}
MAX_BODY_BYTES = {TEXT: 4 * 2**20, MULTIMODAL: 8 * 2**20}
MAX_NAME_CHARS = 256
_FIELDS = frozenset(("model", "state", "questions"))
_QUESTION_FIELDS = frozenset(("type", "instructions", "criteria"))
_ENTRY = (str, dict, list)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceRequest(Request):
    """A request that the original's grammar accepted: with `images` it is a picture of a screen,
    without them text, whatever the text looks like."""


def check_body(fields: Any, modality: str, num_bytes: int) -> Mapping[str, Any]:
    """The body's fields, its size and its model checked. Raises TooLarge or InvalidRequest."""
    if not isinstance(fields, dict):
        raise InvalidRequest.at((), f"the body must be an object, got {kind_of(fields)}")
    limit = MAX_BODY_BYTES[modality]
    if num_bytes > limit:
        raise TooLarge(
            f"body of {num_bytes} bytes, limit {limit} for a {modality} state: send less"
        )
    if fields.get("model") != MODEL:
        raise InvalidRequest.at(
            ("model",), f"model must be {MODEL!r}", "model", fields.get("model", MISSING)
        )
    if modality == MULTIMODAL:
        _refuse_unknown(fields, _FIELDS, ())
    return fields


def check_text_state(state: Any) -> Any:
    """A state of text: anything that says something."""
    if not isinstance(state, _ENTRY) or not state:
        raise InvalidRequest.at(
            ("state",),
            "state must be a string, an object or an array, and not empty",
            "state",
            state,
        )
    return state


def read_questions(entries: Any, modality: str) -> tuple[Question, ...]:
    """The questions of a body. Raises TooLarge for too many of text, InvalidRequest otherwise."""
    if not isinstance(entries, dict) or not entries:
        raise InvalidRequest.at(
            ("questions",), "questions must be an object of at least 1 question", "questions"
        )
    limit = MAX_QUESTIONS[modality]
    if len(entries) > limit:
        msg = (
            f"{len(entries)} questions, limit {limit} for a {modality} state; send several requests"
        )
        if modality == TEXT:
            raise TooLarge(msg)
        raise InvalidRequest.at(("questions",), msg, "too_long")
    return tuple(_question(name, entry, modality) for name, entry in entries.items())


def _question(name: str, entry: Any, modality: str) -> Question:
    loc = ("questions", name)
    shown = f"question {name[:100]!r}"
    if not isinstance(entry, dict):
        raise InvalidRequest.at(loc, f"{shown}: must be an object, got {kind_of(entry)}")
    if entry.get("type") != "choice":
        raise InvalidRequest.at(
            (*loc, "type"),
            f"{shown}: type must be 'choice': this model answers nothing else",
            "unsupported_type",
            entry.get("type", MISSING),
        )
    if modality == MULTIMODAL:
        _refuse_unknown(entry, _QUESTION_FIELDS, loc)
        _check_name(name, loc)
    instructions = entry.get("instructions", MISSING)
    if instructions is not None and not isinstance(instructions, _ENTRY):
        raise InvalidRequest.at(
            (*loc, "instructions"),
            f"{shown}: instructions must be there, as a string, an object, an array or null",
            "instructions",
            instructions,
        )
    criteria = entry.get("criteria", MISSING)
    _check_criteria(criteria, shown, (*loc, "criteria"), modality)
    return Question(id=name, type="choice", instructions=instructions, criteria=criteria)


def _check_criteria(criteria: Any, shown: str, loc: tuple[str, ...], modality: str) -> None:
    if not isinstance(criteria, dict) or not 0 < len(criteria) <= len(LETTERS):
        found = f"{len(criteria)} options" if isinstance(criteria, dict) else "no object"
        raise InvalidRequest.at(
            loc,
            f"{shown}: criteria are {found}, expected an object of 1 to {len(LETTERS)} options",
            "criteria",
        )
    for option, label in criteria.items():
        if label is not None and not isinstance(label, _ENTRY):
            raise InvalidRequest.at(
                (*loc, option),
                f"{shown}: option {option[:100]!r} must be a string, an object, an array or null",
                "criteria",
                label,
            )
        if modality == MULTIMODAL:
            _check_name(option, (*loc, option))


def _check_name(name: str, loc: tuple[str, ...]) -> None:
    if not 0 < len(name) <= MAX_NAME_CHARS:
        raise InvalidRequest.at(
            loc, f"a name of {len(name)} characters, expected 1 to {MAX_NAME_CHARS}", "name"
        )


def _refuse_unknown(fields: Mapping[str, Any], known: frozenset[str], loc: tuple[str, ...]) -> None:
    for name in fields:
        if name not in known:
            raise InvalidRequest.at(
                (*loc, name), f"unknown field {name[:100]!r}: leave it out", "extra_forbidden"
            )
