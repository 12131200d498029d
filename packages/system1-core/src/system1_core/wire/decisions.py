"""OpenAI's dialect: `/v1/decisions`.

A body whose `questions` is an object is the protocol's own and is answered in its shape. A noul
has no criteria here, a score level is shown to the model as "label: description", and a choice's
boolean value as `true` or `false`. Where a string value has that very text, the boolean is shown
as "true (boolean)", so that the two stay different options.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from system1_core.answers import Answer, ChoiceAnswer, NoulAnswer, Result, ScoreAnswer
from system1_core.errors import MISSING, InvalidRequest, System1Error
from system1_core.request import Question, Request
from system1_core.wire.decisions_input import Input
from system1_core.wire.dialect import Body, Dialect, RequestLimits
from system1_core.wire.images import FIELDS, Gallery
from system1_core.wire.problems import Loc, Problems, kind_of
from system1_core.wire.systemone import ALIAS, SystemOne, check_total_options

_KNOWN = frozenset(("model", "input", "questions", *FIELDS))


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What the answer repeats of one question.

    `values` holds a choice's values as sent, or a score's labels, in the order of the options.
    """

    type: str
    name: str | None
    values: tuple[str | bool, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionsRequest(Request):
    """A request in OpenAI's shape; ids are positions, since names may be absent or equal."""

    asked: tuple[Asked, ...]


class Decisions(Dialect):
    """Predicates, choices and scores by position, with typed values."""

    def __init__(self) -> None:
        self._systemone = SystemOne()

    def parse(self, body: Body, limits: RequestLimits) -> Request:
        """Either shape, told apart by the type of `questions`."""
        fields = body.json
        if not isinstance(fields, dict):
            msg = f"the body must be an object, got {kind_of(fields)}"
            raise InvalidRequest.at((), msg, "dict_type")
        if isinstance(fields.get("questions"), dict):
            return self._systemone.parse(body, limits)
        return _parse(fields, body, limits)

    def render(self, request: Request, result: Result, model: str) -> dict[str, Any]:
        """OpenAI's response for OpenAI's request, else the protocol's."""
        if not isinstance(request, DecisionsRequest):
            return self._systemone.render(request, result, model)
        return {
            "model": model,
            "answers": [
                _answer(asked, answer)
                for asked, answer in zip(request.asked, result.answers, strict=True)
            ],
            "usage": {
                "input_tokens": result.input_tokens,
                "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
                "output_tokens": result.output_tokens,
                "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": result.input_tokens + result.output_tokens,
            },
            **result.extra,
        }

    def accepts_model(self, name: str) -> bool:
        """The alias of the protocol, whose body this route takes as well."""
        return name == ALIAS

    def error(self, error: System1Error) -> dict[str, Any]:
        """OpenAI's error object; `param` is the path of the first problem."""
        param, code = None, None
        if isinstance(error, InvalidRequest) and error.problems:
            param, code = _param(error.problems[0].loc), error.problems[0].type
        return {
            "error": {
                "message": error.message,
                "type": error.error_type,
                "param": param,
                "code": code,
            }
        }


def _parse(fields: Mapping[str, Any], body: Body, limits: RequestLimits) -> DecisionsRequest:
    problems = Problems()
    model = fields.get("model")
    if model is not None and not isinstance(model, str):
        msg = f"model: must be a string, got {kind_of(model)}"
        problems.add(("model",), msg, "type_error", model)
    gallery = Gallery(limits, problems)
    # Not OpenAI's fields, but an image must never be ignored.
    gallery.collect(body, fields)
    reader = Input(gallery, problems)
    state = reader.state(fields.get("input", MISSING))
    questions, asked = _questions(fields.get("questions", MISSING), reader, limits, problems)
    reader.check_cache_options(fields)
    problems.raise_if_any()
    state, images = gallery.place(state, questions)
    gallery.check_mentions()
    problems.raise_if_any()
    return DecisionsRequest(
        model=model,
        state=state,
        questions=questions,
        asked=asked,
        images=images,
        extra={name: value for name, value in fields.items() if name not in _KNOWN},
        num_bytes=body.num_bytes,
    )


def _questions(
    entries: Any, reader: Input, limits: RequestLimits, problems: Problems
) -> tuple[tuple[Question, ...], tuple[Asked, ...]]:
    loc: Loc = ("questions",)
    if not isinstance(entries, list):
        found = "missing" if entries is MISSING else kind_of(entries)
        problems.add(loc, f"questions: must be an array of questions, got {found}", "list_type")
        return (), ()
    if not 1 <= len(entries) <= limits.max_decisions:
        msg = f"questions: {len(entries)} questions, must be 1 to {limits.max_decisions}"
        problems.add(loc, msg, "too_long" if entries else "too_short")
        return (), ()
    pairs = []
    total = 0
    for index, entry in enumerate(entries):
        pair = _question(index, entry, reader, limits, problems)
        if pair is not None:
            pairs.append(pair)
            total += len(pair[1].values) or 2
    check_total_options(total, limits, problems)
    return tuple(question for question, _ in pairs), tuple(asked for _, asked in pairs)


_TYPES = {"predicate": "noul", "choice": "choice", "score": "score"}


def _question(
    index: int, entry: Any, reader: Input, limits: RequestLimits, problems: Problems
) -> tuple[Question, Asked] | None:
    loc: Loc = ("questions", index)
    where = f"questions[{index}]"
    if not isinstance(entry, dict):
        problems.add(loc, f"{where}: must be an object, got {kind_of(entry)}", "dict_type")
        return None
    kind = entry.get("type", MISSING)
    if not isinstance(kind, str) or kind not in _TYPES:
        given = "missing" if kind is MISSING else repr(str(kind)[:60])
        msg = f"{where}: type is {given}, must be one of {', '.join(_TYPES)}"
        problems.add((*loc, "type"), msg, "union_tag_invalid", kind)
        return None
    name = entry.get("name")
    if name is not None and not isinstance(name, str):
        msg = f"{where}: name must be a string, got {kind_of(name)}"
        problems.add((*loc, "name"), msg, "string_type", name)
        return None
    instructions = reader.content(
        entry.get("instructions", MISSING), (*loc, "instructions"), "question"
    )
    criteria: Any = None
    values: tuple[str | bool, ...] = ()
    if kind == "choice":
        criteria, values = _choices(entry.get("choices", MISSING), loc, where, limits, problems)
    elif kind == "score":
        criteria, values = _levels(entry.get("levels", MISSING), loc, where, limits, problems)
    question = Question(
        id=str(index), type=_TYPES[kind], instructions=instructions, criteria=criteria
    )
    return question, Asked(type=kind, name=name, values=values)


def _choices(
    entries: Any, loc: Loc, where: str, limits: RequestLimits, problems: Problems
) -> tuple[dict[str, str | None], tuple[str | bool, ...]]:
    loc = (*loc, "choices")
    where = f"{where}.choices"
    values: dict[tuple[type, str | bool], str | None] = {}
    for index, entry in enumerate(_listed(entries, loc, where, limits.max_options, problems)):
        value = entry.get("value", MISSING) if isinstance(entry, dict) else MISSING
        if not isinstance(value, str | bool):
            msg = f"{where}[{index}]: must be an object with a string or boolean value"
            problems.add((*loc, index, "value"), msg, "type_error", value)
        elif (type(value), value) in values:
            msg = f"{where}[{index}]: value {_abridged(value)} occurs twice"
            problems.add((*loc, index, "value"), msg, "duplicate", value)
        else:
            description = _description(entry, (*loc, index), f"{where}[{index}]", problems)
            values[type(value), value] = description
    options: dict[str, str | None] = {}
    texts = {value for _, value in values if isinstance(value, str)}
    for (_, value), description in values.items():
        options[value if isinstance(value, str) else _boolean_option(value, texts)] = description
    return options, tuple(value for _, value in values)


def _boolean_option(value: bool, texts: set[str]) -> str:
    option = "true" if value else "false"
    while option in texts:
        option += " (boolean)"
    return option


def _levels(
    entries: Any, loc: Loc, where: str, limits: RequestLimits, problems: Problems
) -> tuple[list[str], tuple[str | bool, ...]]:
    loc = (*loc, "levels")
    where = f"{where}.levels"
    levels, labels = [], []
    for index, entry in enumerate(_listed(entries, loc, where, limits.max_levels, problems)):
        label = entry.get("label", MISSING) if isinstance(entry, dict) else MISSING
        if not isinstance(label, str):
            msg = f"{where}[{index}]: must be an object with a string label"
            problems.add((*loc, index, "label"), msg, "string_type", label)
            continue
        description = _description(entry, (*loc, index), f"{where}[{index}]", problems)
        levels.append(f"{label}: {description}" if description else label)
        labels.append(label)
    return levels, tuple(labels)


def _listed(entries: Any, loc: Loc, where: str, limit: int, problems: Problems) -> list[Any]:
    if not isinstance(entries, list):
        found = "missing" if entries is MISSING else kind_of(entries)
        problems.add(loc, f"{where}: must be an array, got {found}", "list_type")
        return []
    if not 2 <= len(entries) <= limit:
        msg = f"{where}: {len(entries)} entries, must be 2 to {limit}"
        problems.add(loc, msg, "too_short" if len(entries) < 2 else "too_long")
        return []
    return entries


def _description(entry: Mapping[str, Any], loc: Loc, where: str, problems: Problems) -> str | None:
    description = entry.get("description")
    if description is None or isinstance(description, str):
        return description
    msg = f"{where}: description must be a string, got {kind_of(description)}"
    problems.add((*loc, "description"), msg, "string_type", description)
    return None


def _answer(asked: Asked, answer: Answer) -> dict[str, Any]:
    shown: dict[str, Any] = {"type": asked.type, "name": asked.name}
    if isinstance(answer, NoulAnswer):
        shown["probability"] = answer.probability
    elif isinstance(answer, ChoiceAnswer):
        ranked = tuple(answer.probabilities.values())
        shown["choice"] = asked.values[ranked.index(max(ranked))]
        shown["confidence"] = answer.confidence
        shown["probabilities"] = [
            {"value": value, "probability": p}
            for value, p in zip(asked.values, ranked, strict=True)
        ]
    elif isinstance(answer, ScoreAnswer):
        shown["score"] = answer.score
        shown["confidence"] = answer.confidence
        shown["probabilities"] = [
            {"value": level, "label": label, "probability": p}
            for level, (label, p) in enumerate(zip(asked.values, answer.probabilities, strict=True))
        ]
    shown.update(answer.extra)
    return shown


def _abridged(value: str | bool) -> str:
    return repr(value[:60]) if isinstance(value, str) else str(value).lower()


def _param(loc: Loc) -> str | None:
    """`questions[0].choices` for a path; a model's problem names a question by id and type."""
    path = list(loc[1:])
    if path[:1] == ["questions"] and len(path) > 2 and str(path[1]).isdecimal():
        kind = path[2]
        if isinstance(path[1], str) and kind in ("noul", "choice", "score"):
            fields = {"choice": "choices", "score": "levels"}
            rest = [
                fields.get(str(kind), part) if part == "criteria" else part for part in path[3:]
            ]
            path = ["questions", int(path[1]), *rest]
    shown = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return shown.removeprefix(".") or None
