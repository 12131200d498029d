"""The protocol's own dialect: `/v1/systemone` and `/v1/systemone/batch`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from system1_core.answers import Result
from system1_core.errors import MISSING, InvalidRequest, abridged
from system1_core.request import EMPTY, QUESTION_TYPES, Question, Request
from system1_core.wire.dialect import Body, Dialect, RequestLimits
from system1_core.wire.images import FIELDS, Gallery
from system1_core.wire.problems import Loc, Problems, kind_of

ALIAS = "jev-latest"

_ENTRY = (str, dict, list)
_KNOWN = frozenset(("model", "state", "states", "questions", *FIELDS))
_QUESTION_KEYS = frozenset(("type", "instructions", "criteria"))
_SIDES = frozenset(("true", "false"))


class SystemOne(Dialect):
    """Typed questions by id, answers by id."""

    def parse(self, body: Body, limits: RequestLimits) -> Request:
        """Unknown fields are kept in `extra`; all problems of a body are reported at once."""
        problems = Problems()
        fields = _object(body.json)
        model = _model(fields, problems)
        state = _state(fields.get("state", MISSING), ("state",), problems)
        questions = parse_questions(fields.get("questions", MISSING), limits, problems)
        images: Mapping[str, Any] = EMPTY
        if has_images(body, fields, (state,)):
            gallery = Gallery(limits, problems)
            gallery.collect(body, fields)
            state = gallery.lift_items(state, ("state",))
            problems.raise_if_any()
            state, images = gallery.place(state, questions)
            gallery.check_mentions()
        problems.raise_if_any()
        return Request(
            model=model,
            state=state,
            questions=questions,
            images=images,
            extra=_extra(fields, _KNOWN),
            num_bytes=body.num_bytes,
        )

    def parse_batch(self, body: Body, limits: RequestLimits) -> list[Request]:
        """`states` instead of `state`; `assets` may be mentioned by any of them."""
        problems = Problems()
        fields = _object(body.json)
        model = _model(fields, problems)
        states = _states(fields, limits, problems)
        questions = parse_questions(fields.get("questions", MISSING), limits, problems)
        total = sum(len(question.options) for question in questions)
        check_total_options(len(states) * total, limits, problems, "states times questions")
        placed: list[tuple[Any, Mapping[str, Any]]] = [(state, EMPTY) for state in states]
        if has_images(body, fields, states):
            for name in ("media", "images"):
                if fields.get(name) is not None:
                    msg = f"{name}: not on the batch route, which state is meant? use assets"
                    problems.add((name,), msg, "value_error")
            gallery = Gallery(limits, problems)
            gallery.collect(body, {"assets": fields.get("assets")})
            states = [gallery.lift_items(s, ("states", i)) for i, s in enumerate(states)]
            problems.raise_if_any()
            placed = [gallery.place(state, questions, is_shared=True) for state in states]
            gallery.check_mentions()
        problems.raise_if_any()
        extra = _extra(fields, _KNOWN)
        return [
            Request(
                model=model,
                state=state,
                questions=questions,
                images=images,
                extra=extra,
                num_bytes=body.num_bytes // len(placed),
            )
            for state, images in placed
        ]

    def render(self, request: Request, result: Result, model: str) -> dict[str, Any]:
        """The protocol's response; `result.extra` stands at its top level."""
        return {
            "model": model,
            "answers": {
                question.id: answer.as_json(question)
                for question, answer in zip(request.questions, result.answers, strict=True)
            },
            "usage": {
                "input_tokens": result.input_tokens,
                "output_tokens": result.output_tokens,
            },
            **result.extra,
        }

    def accepts_model(self, name: str) -> bool:
        """The default `model` of the official SDKs."""
        return name == ALIAS


def has_images(body: Body, fields: Mapping[str, Any], states: Any) -> bool:
    """Whether a body may hold images, cheaply."""
    if body.parts or not fields.keys().isdisjoint(FIELDS):
        return True
    return any(
        isinstance(item, dict) and item.get("type") == "image_url"
        for state in states
        if isinstance(state, list)
        for item in state
    )


def parse_questions(
    entries: Any, limits: RequestLimits, problems: Problems
) -> tuple[Question, ...]:
    """The questions of an object by id; problems are noted."""
    if not isinstance(entries, dict):
        _expected(("questions",), "questions", "an object of questions by id", entries, problems)
        return ()
    if not entries:
        problems.add(("questions",), "questions: at least 1 question is needed", "too_short")
    if len(entries) > limits.max_questions:
        found = f"{len(entries)} questions, limit {limits.max_questions}"
        msg = f"questions: {found}; send several requests"
        problems.add(("questions",), msg, "too_long")
        return ()
    questions = []
    total = 0
    for name, entry in entries.items():
        question = _question(name, entry, limits, problems)
        if question is not None:
            questions.append(question)
            total += 2 if question.type == "noul" else len(question.criteria)
    check_total_options(total, limits, problems)
    return tuple(questions)


def check_total_options(
    total: int, limits: RequestLimits, problems: Problems, where: str = "questions"
) -> None:
    """Notes a body that asks for too many options and levels together."""
    if total > limits.max_total_options:
        found = f"{total} options in all, limit {limits.max_total_options}"
        msg = f"{where}: {found}; send several requests"
        problems.add(("questions",), msg, "too_long")


def _question(name: str, entry: Any, limits: RequestLimits, problems: Problems) -> Question | None:
    loc: Loc = ("questions", name)
    # What is wrong with it stands behind its name.
    shown = abridged(name)
    if not name:
        problems.add(loc, "questions: an id must not be empty", "too_short")
        return None
    if not isinstance(entry, dict):
        _expected(loc, f"question {shown!r}", "an object", entry, problems)
        return None
    kind = entry.get("type", MISSING)
    check = _CRITERIA.get(kind) if isinstance(kind, str) else None
    if check is None:
        given = "is missing" if kind is MISSING else f"{_shown(kind)} is unknown"
        msg = f"question {shown!r}: type {given}, must be one of {', '.join(QUESTION_TYPES)}"
        fault = "missing" if kind is MISSING else "union_tag_invalid"
        problems.add((*loc, "type"), msg, fault, kind)
        return None
    loc = (*loc, kind)
    instructions = entry.get("instructions")
    if instructions is not None and not isinstance(instructions, _ENTRY):
        where = f"question {shown!r}: instructions"
        _expected((*loc, "instructions"), where, _ENTRY_OR_NULL, instructions, problems)
        return None
    criteria = entry.get("criteria", MISSING)
    if not check(criteria, f"question {shown!r}: criteria", (*loc, "criteria"), limits, problems):
        return None
    return Question(
        id=name,
        type=kind,
        instructions=instructions,
        criteria=None if criteria is MISSING else criteria,
        extra=_extra(entry, _QUESTION_KEYS),
    )


_ENTRY_OR_NULL = "a string, an object, an array or null"


def _choice(criteria: Any, where: str, loc: Loc, limits: RequestLimits, problems: Problems) -> bool:
    if not isinstance(criteria, dict):
        _expected(loc, where, "an object of option name to description or null", criteria, problems)
        return False
    if not criteria:
        problems.add(loc, f"{where}: at least 1 option is needed", "too_short")
        return False
    if len(criteria) > limits.max_options:
        msg = f"{where}: {len(criteria)} options, limit {limits.max_options}; leave some out"
        problems.add(loc, msg, "too_long")
        return False
    return _entries(criteria.items(), where, loc, problems)


def _score(criteria: Any, where: str, loc: Loc, limits: RequestLimits, problems: Problems) -> bool:
    if not isinstance(criteria, list):
        _expected(loc, where, "an array of levels, lowest first", criteria, problems)
        return False
    if not criteria:
        problems.add(loc, f"{where}: at least 1 level is needed", "too_short")
        return False
    if len(criteria) > limits.max_levels:
        msg = f"{where}: {len(criteria)} levels, limit {limits.max_levels}; join some"
        problems.add(loc, msg, "too_long")
        return False
    is_fine = True
    for index, level in enumerate(criteria):
        if not isinstance(level, _ENTRY):
            what = "a string, an object or an array"
            _expected((*loc, index), f"{where}.{index}", what, level, problems)
            is_fine = False
    return is_fine


def _noul(criteria: Any, where: str, loc: Loc, limits: RequestLimits, problems: Problems) -> bool:
    if criteria is None or criteria is MISSING:
        return True
    if not isinstance(criteria, dict):
        _expected(loc, where, "an object with 'true' and 'false', or null", criteria, problems)
        return False
    unknown = [side for side in criteria if side not in _SIDES]
    if unknown:
        names = ", ".join(repr(side[:60]) for side in unknown[:5])
        msg = f"{where}: unknown side {names}, only 'true' and 'false' are sides of a noul"
        problems.add(loc, msg, "extra_forbidden")
        return False
    return _entries(criteria.items(), where, loc, problems)


_CRITERIA = {"choice": _choice, "score": _score, "noul": _noul}


def _entries(entries: Any, where: str, loc: Loc, problems: Problems) -> bool:
    is_fine = True
    for name, entry in entries:
        if entry is not None and not isinstance(entry, _ENTRY):
            shown = f"{where}, option {name[:100]!r}"
            _expected((*loc, name), shown, _ENTRY_OR_NULL, entry, problems)
            is_fine = False
    return is_fine


def _object(value: Any) -> dict[str, Any]:
    if isinstance(value, dict):
        return value
    raise InvalidRequest.at((), f"the body must be an object, got {kind_of(value)}", "dict_type")


def _model(fields: Mapping[str, Any], problems: Problems) -> str | None:
    model = fields.get("model")
    if model is None or isinstance(model, str):
        return model
    _expected(("model",), "model", "a string", model, problems)
    return None


def _state(state: Any, loc: Loc, problems: Problems) -> Any:
    if not isinstance(state, _ENTRY):
        shown = ".".join(map(str, loc))
        _expected(loc, shown, "a string, an object or an array", state, problems)
    return state


def _states(fields: Mapping[str, Any], limits: RequestLimits, problems: Problems) -> list[Any]:
    states = fields.get("states", MISSING)
    if not isinstance(states, list):
        _expected(("states",), "states", "an array of states", states, problems)
        return []
    if not states:
        problems.add(("states",), "states: at least 1 state is needed", "too_short")
    if len(states) > limits.max_states:
        msg = f"states: {len(states)} states, limit {limits.max_states}; send several requests"
        problems.add(("states",), msg, "too_long")
        return []
    for index, state in enumerate(states):
        _state(state, ("states", index), problems)
    return states


def _extra(entry: Mapping[str, Any], known: frozenset[str]) -> Mapping[str, Any]:
    if entry.keys() <= known:
        return EMPTY
    return {name: value for name, value in entry.items() if name not in known}


def _expected(loc: Loc, where: str, what: str, found: Any, problems: Problems) -> None:
    """Notes a missing field or one of the wrong type."""
    if found is MISSING:
        problems.add(loc, f"{where}: missing, must be {what}", "missing")
    else:
        problems.add(loc, f"{where}: must be {what}, got {kind_of(found)}", "type_error", found)


def _shown(kind: Any) -> str:
    return repr(kind[:60]) if isinstance(kind, str) else kind_of(kind)
