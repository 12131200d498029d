"""The original's request grammar: what it accepts, what it refuses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from system1_core.errors import MISSING, InvalidRequest
from system1_core.request import QUESTION_TYPES, Question, Request
from system1_core.wire.dialect import RequestLimits

MAX_TEMPERATURE = 100.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ClmRequest(Request):
    """A request of the original's grammar."""

    temperature: float = 1.0


def read_model(fields: Mapping[str, Any]) -> str | None:
    """The model's name; None where the default is meant."""
    model = fields.get("model")
    if model is not None and not isinstance(model, str):
        raise InvalidRequest.at(("model",), "unknown model: the name must be a string", input=model)
    return model or None


def read_temperature(fields: Mapping[str, Any]) -> float:
    """A number above 0, at most 100, also spelt as a string; 1 where it is absent."""
    value = fields.get("temperature", 1.0)
    try:
        temperature = float(value)
    except (TypeError, ValueError, OverflowError):
        raise InvalidRequest.at(
            ("temperature",), "temperature must be a number", "type_error", value
        ) from None
    if not 0 < temperature <= MAX_TEMPERATURE:
        msg = f"temperature must be in (0, {MAX_TEMPERATURE:g}], got {temperature}"
        raise InvalidRequest.at(("temperature",), msg, input=value)
    return temperature


def read_questions(entries: Mapping[str, Any], limits: RequestLimits) -> tuple[Question, ...]:
    """The questions by id; a server's own cap on all options together is the only limit."""
    if not entries:
        raise InvalidRequest.at(("questions",), "questions must not be empty", "too_short")
    questions = tuple(_question(name, entry) for name, entry in entries.items())
    check_total_options(sum(len(question.options) for question in questions), limits)
    return questions


def check_total_options(total: int, limits: RequestLimits) -> None:
    """Raises InvalidRequest for more options than one request may hold."""
    if total > limits.max_total_options:
        msg = f"questions: {total} options in all, limit {limits.max_total_options}"
        raise InvalidRequest.at(("questions",), msg, "too_long")


def _question(name: str, entry: Any) -> Question:
    if not isinstance(entry, dict):
        msg = f"question {name!r}: must be an object"
        raise InvalidRequest.at(("questions", name), msg, "type_error", entry)
    kind = entry.get("type", MISSING)
    if not isinstance(kind, str) or kind not in QUESTION_TYPES:
        msg = f"question {name!r}: unknown question type; expected one of noul, choice, score"
        fault = "missing" if kind is MISSING else "union_tag_invalid"
        raise InvalidRequest.at(("questions", name, "type"), msg, fault, kind)
    criteria = entry.get("criteria")
    question = Question(
        id=name,
        type=kind,
        instructions=entry.get("instructions"),
        # Anything but an object says nothing about the sides of a noul.
        criteria=criteria if kind != "noul" or isinstance(criteria, dict) else None,
    )
    if kind == "choice" and not (isinstance(criteria, dict) and criteria):
        raise question.invalid("needs a non-empty 'criteria' object", "criteria", input=criteria)
    if kind == "score" and not (isinstance(criteria, list) and len(criteria) >= 2):
        msg = "needs 'criteria' as an ordered list of 2 levels or more"
        raise question.invalid(msg, "criteria", input=criteria)
    return question
