"""What the original accepts of a request body, and what it refuses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from models_laya.config import bucket
from models_laya.options import MAX_TOKEN_BUDGET
from models_laya.routing import FAMILY_REPO, checkpoint_named
from system1_core.errors import InvalidRequest, TooLarge
from system1_core.request import QUESTION_TYPES, Question, json_text

MAX_STATE_CHARACTERS = 50_000
MAX_QUESTIONS = 64
MAX_OPTIONS = 100
MAX_TOURNAMENT_OPTIONS = 255
MAX_LEVELS = 32
MAX_TOTAL_OPTIONS = 512
MAX_STATES = 64

_HOOKS = ("hooks", "on_predict_start", "on_predict_end", "hooks_raise", "hooks_timeout")
# Every name a threshold map may use: buckets of all types, and the rest.
_THRESHOLDS = {bucket(type, n) for type in QUESTION_TYPES for n in (2, 5, 10, 11)} | {"default"}


def invalid(field: str, msg: str, value: Any) -> InvalidRequest:
    """A 422 at a top-level field."""
    return InvalidRequest.at((field,), msg, input=value)


def check_state(state: Any, *path: str | int) -> None:
    """The state's text must not exceed the original's limit."""
    if state is None:
        raise InvalidRequest.at(path, "'state' is required and must not be null", "missing")
    size = len(json_text(state))
    if size > MAX_STATE_CHARACTERS:
        raise TooLarge(f"state too large ({size} > {MAX_STATE_CHARACTERS} chars)")


def check_sizes(questions: Mapping[str, Any], max_options: int) -> None:
    """Counts only, before anything is looked at closely."""
    if len(questions) > MAX_QUESTIONS:
        raise TooLarge(f"too many questions ({len(questions)} > {MAX_QUESTIONS})")
    total = 0
    for name, entry in questions.items():
        if not isinstance(entry, dict):
            continue
        criteria, type = entry.get("criteria"), entry.get("type")
        if type == "choice" and isinstance(criteria, dict | list):
            total += _count(name, len(criteria), max_options, "choice options")
        elif type == "score" and isinstance(criteria, list):
            total += _count(name, len(criteria), MAX_LEVELS, "score levels")
    if total > MAX_TOTAL_OPTIONS:
        raise TooLarge(f"too many options and levels in total ({total} > {MAX_TOTAL_OPTIONS})")


def _count(name: str, count: int, limit: int, what: str) -> int:
    if count > limit:
        raise TooLarge(f"too many {what} for {name!r} ({count} > {limit})")
    return count


def check_hooks(fields: Mapping[str, Any]) -> None:
    """Hooks run in the original's process only."""
    for name in _HOOKS:
        if fields.get(name) is not None:
            raise invalid(name, f"{name} is not available over HTTP: leave it out", fields[name])


def read_model(value: Any) -> str | None:
    """A name, a published repository, or nothing (the original ignores what is no string)."""
    if not isinstance(value, str):
        return None
    key = value.strip()
    is_path = any(mark in key for mark in "/\\") or key.startswith((".", "~"))
    if is_path and key.lower() != FAMILY_REPO and checkpoint_named(key) is None:
        raise invalid(
            "model",
            f"model {value[:100]!r} is neither a name nor a published LAYA repository: use "
            "english, multilingual or typed-decisions",
            value,
        )
    return value


def read_budget(fields: Mapping[str, Any], name: str) -> int | None:
    """`max_len` or `head_max_len`."""
    value = fields.get(name)
    if value is None:
        return None
    if type(value) is not int:
        raise invalid(name, f"{name} must be an integer", value)
    if value <= 0:
        raise invalid(name, f"{name} must be a positive integer", value)
    if value > MAX_TOKEN_BUDGET:
        raise invalid(name, f"{name} is {value}, limit {MAX_TOKEN_BUDGET}", value)
    return value


def read_text(fields: Mapping[str, Any], name: str, example: str) -> str | None:
    """A field that is a string where it is sent."""
    value = fields.get(name)
    if value is None or isinstance(value, str):
        return value
    raise invalid(name, f"{name} must be a {example}, or null", value)


def read_min_confidence(value: Any) -> float | dict[str, float] | None:
    """One threshold, or one a bucket."""
    if value is None:
        return None
    if isinstance(value, dict):
        if not value:
            raise invalid("min_confidence", "min_confidence: an empty map has no threshold", value)
        for name in value:
            if name not in _THRESHOLDS:
                raise invalid(
                    "min_confidence",
                    f"min_confidence: {name[:100]!r} is no bucket; use default or one of "
                    f"{', '.join(sorted(_THRESHOLDS - {'default'}))}",
                    name,
                )
        return {name: _threshold(each) for name, each in value.items()}
    return _threshold(value)


def _threshold(value: Any) -> float:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not 0 <= value <= 1:
        raise invalid("min_confidence", "min_confidence must be a number from 0 to 1", value)
    return value


def read_question(name: str, entry: Any) -> Question:
    """One question, its choice criteria as a mapping from label to description."""
    if not name.strip():
        raise InvalidRequest.at(("questions", name), "a question id must not be blank")
    if not isinstance(entry, dict):
        msg = f"question {name!r} must be an object"
        raise InvalidRequest.at(("questions", name), msg, input=entry)
    type = entry.get("type")
    if not isinstance(type, str) or type not in QUESTION_TYPES:
        msg = f"question {name!r}: type must be one of {', '.join(QUESTION_TYPES)}"
        raise InvalidRequest.at(("questions", name, "type"), msg, input=type)
    # A null order is refused, null labels of a noul are none: so does the original.
    extra = {"option_order": entry["option_order"]} if "option_order" in entry else {}
    if entry.get("labels") is not None:
        extra["labels"] = entry["labels"]
    question = Question(
        id=name,
        type=type,
        instructions=entry.get("instructions"),
        criteria=entry.get("criteria"),
        extra=extra,
    )
    if type != "noul" and "labels" in entry:
        raise question.invalid("labels are for a noul only: leave them out", "labels")
    _check_instructions(question)
    return _READERS[type](question)


def _check_instructions(question: Question) -> None:
    value = question.instructions
    if value is None or value in ("", [], {}) or (isinstance(value, str) and not value.strip()):
        raise question.invalid(
            "instructions must be text, or an object or list that is not empty",
            "instructions",
            input=value,
        )


def _read_choice(question: Question) -> Question:
    criteria = question.criteria
    if not isinstance(criteria, dict | list) or not criteria:
        raise question.invalid(
            "criteria must be an object of labels, or a list of them, with at least one",
            "criteria",
            input=criteria,
        )
    if isinstance(criteria, list):
        criteria = _labels_of(question, criteria)
    return _checked(question, criteria, len(criteria))


def _labels_of(question: Question, labels: list[Any]) -> dict[Any, None]:
    seen: dict[Any, None] = {}
    for index, label in enumerate(labels):
        if not isinstance(label, str | int | float):
            msg = f"label {index} must be a string, a number or a boolean"
            raise question.invalid(msg, "criteria", index, input=label)
        # 1, 1.0 and true are one key, here as there.
        if label in seen:
            msg = f"label {index} ({json_text(label)[:100]}) repeats another"
            raise question.invalid(msg, "criteria", index, input=label)
        seen[label] = None
    return seen


def _read_score(question: Question) -> Question:
    criteria = question.criteria
    if not isinstance(criteria, list) or not criteria:
        raise question.invalid(
            "criteria must be a list of levels, lowest first, with at least one",
            "criteria",
            input=criteria,
        )
    for index, level in enumerate(criteria):
        if level is None:
            raise question.invalid(f"level {index} must not be null", "criteria", index)
    return _checked(question, criteria, len(criteria))


def _read_noul(question: Question) -> Question:
    criteria = {} if question.criteria is None else question.criteria
    if not isinstance(criteria, dict) or not {key.lower() for key in criteria} <= {"true", "false"}:
        raise question.invalid(
            'criteria must be an object with no keys but "true" and "false"',
            "criteria",
            input=criteria,
        )
    if "labels" in question.extra:
        _check_labels(question)
    return _checked(question, {key.lower(): text for key, text in criteria.items()}, 2)


def _check_labels(question: Question) -> None:
    labels = question.extra["labels"]
    is_fine = (
        isinstance(labels, dict)
        and set(labels) == {"true", "false"}
        and all(isinstance(label, str) and label.strip() for label in labels.values())
        and labels["true"].strip() != labels["false"].strip()
    )
    if not is_fine:
        raise question.invalid(
            'labels must be two different texts under "true" and "false"', "labels", input=labels
        )


def _checked(question: Question, criteria: Any, num_options: int) -> Question:
    extra = question.extra
    order = extra.get("option_order")
    is_fine = isinstance(order, list) and all(type(slot) is int for slot in order)
    if "option_order" in extra and not (is_fine and sorted(order) == list(range(num_options))):
        raise question.invalid(
            f"option_order must hold every number from 0 to {num_options - 1} once",
            "option_order",
            input=order,
        )
    return Question(
        id=question.id,
        type=question.type,
        instructions=question.instructions,
        criteria=criteria,
        extra=extra,
    )


_READERS = {"choice": _read_choice, "score": _read_score, "noul": _read_noul}
