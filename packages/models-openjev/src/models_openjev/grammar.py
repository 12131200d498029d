"""What the original accepts of a request body, and what it refuses, in its order."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from system1_core.errors import MISSING, InvalidRequest
from system1_core.request import QUESTION_TYPES, Question
from system1_core.wire.problems import kind_of

MAX_QUESTIONS = 4_096
MAX_OPTIONS = 255
MIN_LEVELS, MAX_LEVELS = 2, 10
MAX_CANDIDATES = 65_536

_ENTRY = (str, dict, list)
_ENTRY_KINDS = "a string, an object or an array"


def read_model(fields: Mapping[str, Any]) -> str | None:
    """The model's name; which names there are is the server's to know."""
    model = fields.get("model")
    if model is None or isinstance(model, str):
        return model
    raise InvalidRequest.at(("model",), f"model: must be a string, got {kind_of(model)}")


def check_state(state: Any, *path: str | int) -> None:
    if not isinstance(state, _ENTRY):
        where = ".".join(map(str, path))
        raise InvalidRequest.at(
            path, f"{where}: must be {_ENTRY_KINDS}, got {kind_of(state)}", "type_error", state
        )


def read_questions(value: Any) -> tuple[Question, ...]:
    """The questions by id. Raises InvalidRequest for the first thing that is wrong."""
    if not isinstance(value, dict) or not 1 <= len(value) <= MAX_QUESTIONS:
        found = f"{len(value)} of them" if isinstance(value, dict) else kind_of(value)
        raise InvalidRequest.at(
            ("questions",),
            f"questions: must be an object of 1 to {MAX_QUESTIONS} questions by id, got {found}",
        )
    questions = tuple(_read_question(name, entry) for name, entry in value.items())
    total = sum(1 if each.type == "noul" else len(each.criteria) for each in questions)
    if total > MAX_CANDIDATES:
        raise InvalidRequest.at(
            ("questions",),
            f"questions: {total} candidates in all, limit {MAX_CANDIDATES}; ask in several "
            "requests",
            "too_long",
        )
    return questions


def _read_question(name: str, entry: Any) -> Question:
    if not isinstance(entry, dict):
        raise InvalidRequest.at(
            ("questions", name), f"question {name!r}: must be an object, got {kind_of(entry)}"
        )
    type = entry.get("type")
    if not isinstance(type, str) or type not in QUESTION_TYPES:
        msg = f"question {name!r}: type must be one of {', '.join(QUESTION_TYPES)}"
        raise InvalidRequest.at(("questions", name, "type"), msg, "union_tag_invalid", type)
    question = Question(
        id=name,
        type=type,
        instructions=entry.get("instructions", MISSING),
        criteria=entry.get("criteria"),
    )
    _check_entry(question, question.instructions, "instructions")
    _CRITERIA[type](question)
    return question


def _check_entry(question: Question, value: Any, *path: str | int) -> None:
    if not isinstance(value, _ENTRY):
        where = ".".join(map(str, path))
        found = "it is missing" if value is MISSING else f"got {kind_of(value)}"
        raise question.invalid(
            f"{where}: must be {_ENTRY_KINDS}, {found}", *path, type="type_error"
        )


def _check_choice(question: Question) -> None:
    criteria = question.criteria
    if not isinstance(criteria, dict) or not 1 <= len(criteria) <= MAX_OPTIONS:
        found = f"{len(criteria)} of them" if isinstance(criteria, dict) else kind_of(criteria)
        raise question.invalid(
            f"criteria: must be an object of 1 to {MAX_OPTIONS} options, got {found}", "criteria"
        )
    for name, meaning in criteria.items():
        if meaning is not None:
            _check_entry(question, meaning, "criteria", name)


def _check_score(question: Question) -> None:
    criteria = question.criteria
    if not isinstance(criteria, list) or not MIN_LEVELS <= len(criteria) <= MAX_LEVELS:
        found = f"{len(criteria)} of them" if isinstance(criteria, list) else kind_of(criteria)
        raise question.invalid(
            f"criteria: must be an array of {MIN_LEVELS} to {MAX_LEVELS} levels, got {found}",
            "criteria",
        )
    for index, level in enumerate(criteria):
        _check_entry(question, level, "criteria", index)


def _check_noul(question: Question) -> None:
    criteria = question.criteria
    if criteria is None:
        return
    if not isinstance(criteria, dict) or set(criteria) != {"true", "false"}:
        raise question.invalid(
            "criteria: must be null or an object with exactly the keys 'true' and 'false'",
            "criteria",
        )
    for side, meaning in criteria.items():
        _check_entry(question, meaning, "criteria", side)


_CRITERIA = {"choice": _check_choice, "score": _check_score, "noul": _check_noul}
