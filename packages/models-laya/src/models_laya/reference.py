"""The original's dialect: its grammar in, its fields and rounding out."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from models_laya import grammar
from models_laya.config import bucket
from models_laya.questions import LayaRequest
from system1_core.answers import (
    Answer,
    ChoiceAnswer,
    NoulAnswer,
    Result,
    choice_confidence,
    score_confidence,
)
from system1_core.errors import InvalidRequest, TooLarge
from system1_core.request import Question, Request, json_text
from system1_core.wire.dialect import Body, Dialect, RequestLimits

MODEL = "laya-rl-agent"
_LANGUAGE = 'language code string such as "de"'
_STRICT_FIELDS = {
    "choice": ("type", "choice", "confidence", "probabilities"),
    "score": ("type", "score", "confidence", "probabilities", "legend"),
    "noul": ("type", "noul"),
}


class ReferenceDialect(Dialect):
    """Errors are the protocol's, accepting and refusing is the original's."""

    def __init__(self, *, strict: bool = False, tournament_group: int | None = None) -> None:
        self._strict = strict
        is_tournament = bool(tournament_group)
        self._max_options = grammar.MAX_TOURNAMENT_OPTIONS if is_tournament else grammar.MAX_OPTIONS

    def parse(self, body: Body, limits: RequestLimits) -> LayaRequest:
        fields, questions = _shape(body.json, "questions")
        if fields.get("state") is None:
            raise InvalidRequest.at(("state",), "'state' is required", "missing")
        self._check_questions(questions)
        grammar.check_state(fields["state"], "state")
        return self._request(fields, fields["state"], questions, body.num_bytes)

    def parse_batch(self, body: Body, limits: RequestLimits) -> list[Request]:
        fields, questions = _shape(body.json, "states", "questions")
        states = fields["states"]
        if not isinstance(states, list) or not states:
            raise grammar.invalid("states", "'states' must be a non-empty list", states)
        if None in states:
            where = ("states", states.index(None))
            raise InvalidRequest.at(where, "'state' is required", "missing")
        if len(states) > grammar.MAX_STATES:
            raise TooLarge(f"too many states in batch ({len(states)} > {grammar.MAX_STATES})")
        self._check_questions(questions)
        for index, state in enumerate(states):
            grammar.check_state(state, "states", index)
        _check_batch_fields(fields)
        share = body.num_bytes // len(states)
        return [self._request(fields, state, questions, share) for state in states]

    def accepts_model(self, name: str) -> bool:
        """Any: plain names route by language, and `parse` refuses what is no name."""
        return True

    def render(self, request: Request, result: Result, model: str) -> dict[str, Any]:
        threshold = request.min_confidence if isinstance(request, LayaRequest) else None
        answers = {
            question.id: self._render_answer(question, answer, threshold)
            for question, answer in zip(request.questions, result.answers, strict=True)
        }
        usage = {"input_tokens": result.input_tokens, "output_tokens": result.output_tokens}
        body: dict[str, Any] = {"model": MODEL, "answers": answers, "usage": usage}
        if not self._strict:
            usage |= result.extra.get("x_usage", {})
            body["routing"] = result.extra["x_routing"]
        return body

    def _check_questions(self, questions: Mapping[str, Any]) -> None:
        grammar.check_sizes(questions, self._max_options)

    def _request(
        self, fields: Mapping[str, Any], state: Any, questions: Mapping[str, Any], num_bytes: int
    ) -> LayaRequest:
        grammar.check_hooks(fields)
        return LayaRequest(
            model=grammar.read_model(fields.get("model")),
            max_len=grammar.read_budget(fields, "max_len"),
            head_max_len=grammar.read_budget(fields, "head_max_len"),
            lang=grammar.read_text(fields, "lang", _LANGUAGE),
            lang_guess=grammar.read_text(fields, "lang_guess", _LANGUAGE),
            min_confidence=grammar.read_min_confidence(fields.get("min_confidence")),
            task=grammar.read_text(fields, "task", "checkpoint name string"),
            questions=tuple(grammar.read_question(*entry) for entry in questions.items()),
            state=state,
            num_bytes=num_bytes,
        )

    def _render_answer(
        self, question: Question, answer: Answer, threshold: float | Mapping[str, float] | None
    ) -> dict[str, Any]:
        shown = _RENDER[question.type](question, answer)
        if self._strict:
            return {name: shown[name] for name in _STRICT_FIELDS[question.type]}
        shown["action"] = {"act_probability": _rounded(answer.extra["x_action"]["act_probability"])}
        if threshold is not None:
            shown |= _abstention(question, answer, shown["answer_confidence"], threshold)
        if "x_tournament" in answer.extra:
            shown["x_tournament"] = answer.extra["x_tournament"]
        if question.type != "noul":
            shown["x_jev_confidence"] = _jev_confidence(question.type, answer)
        return shown


def _shape(value: Any, *needed: str) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """The body and its questions; the first thing the original looks at."""
    if not isinstance(value, dict) or not all(name in value for name in needed):
        names = " and ".join(repr(name) for name in needed)
        plural = "fields" if len(needed) > 1 else "field"
        article = "" if len(needed) > 1 else "a "
        raise InvalidRequest.at(
            (), f"request body must be an object with {article}{names} {plural}"
        )
    if not isinstance(value["questions"], dict):
        raise grammar.invalid("questions", "'questions' must be an object", value["questions"])
    return value, value["questions"]


def _check_batch_fields(fields: Mapping[str, Any]) -> None:
    """They change nothing here: rows are packed, not padded, whatever their order."""
    size, is_sorted = fields.get("batch_size"), fields.get("sort_by_length")
    if size is not None and type(size) is not int:
        raise grammar.invalid("batch_size", "batch_size must be an integer", size)
    if size is not None and size <= 0:
        raise grammar.invalid("batch_size", "batch_size must be a positive integer", size)
    if is_sorted is not None and not isinstance(is_sorted, bool):
        raise grammar.invalid("sort_by_length", "sort_by_length must be a boolean", is_sorted)
    if fields.get("diagnostics") is not None:
        msg = "diagnostics is not available over HTTP: leave it out"
        raise grammar.invalid("diagnostics", msg, fields["diagnostics"])


def _choice(question: Question, answer: Answer) -> dict[str, Any]:
    assert isinstance(answer, ChoiceAnswer)
    probabilities = {
        label if isinstance(label, str) else json.dumps(label): _rounded(p)
        for label, p in answer.probabilities.items()
    }
    contested = _contested(answer)
    return {
        "type": "choice",
        "choice": answer.choice,
        "probabilities": probabilities,
        "confidence": _rounded(_entropy_confidence(contested)),
        "answer_confidence": _rounded(max(contested)),
    }


def _score(question: Question, answer: Answer) -> dict[str, Any]:
    p = tuple(answer.probabilities)  # type: ignore[union-attr]
    return {
        "type": "score",
        "score": _rounded(math.fsum(level * each for level, each in enumerate(p))),
        "legend": {str(i): json_text(level) for i, level in enumerate(question.criteria)},
        "probabilities": {str(i): _rounded(each) for i, each in enumerate(p)},
        "confidence": _rounded(_entropy_confidence(p)),
        "answer_confidence": _rounded(max(p)),
    }


def _noul(question: Question, answer: Answer) -> dict[str, Any]:
    assert isinstance(answer, NoulAnswer)
    return {
        "type": "noul",
        "noul": _rounded(answer.probability),
        "confidence": _rounded(answer.confidence),
        "answer_confidence": _rounded(answer.confidence),
    }


_RENDER = {"choice": _choice, "score": _score, "noul": _noul}


def _contested(answer: Answer) -> list[float]:
    """Probabilities of the options that met in the last pass."""
    assert isinstance(answer, ChoiceAnswer)
    tournament = answer.extra.get("x_tournament")
    labels = answer.probabilities if tournament is None else tournament["finalists"]
    return [answer.probabilities[label] for label in labels]


def _entropy_confidence(p: Sequence[float]) -> float:
    if len(p) < 2:
        return 1.0
    entropy = -math.fsum(each * math.log(max(each, 1e-12)) for each in p)
    return min(1.0, max(0.0, 1 - entropy / math.log(len(p))))


def _jev_confidence(type: str, answer: Answer) -> float:
    """The protocol's confidence of the rounded probabilities, brought back to a sum of 1."""
    values = answer.probabilities  # type: ignore[union-attr]
    rounded = [_rounded(p) for p in (values.values() if type == "choice" else values)]
    total = math.fsum(rounded)
    p = [each / total if total else 1 / len(rounded) for each in rounded]
    return _rounded(choice_confidence(p) if type == "choice" else score_confidence(p))


def _abstention(
    question: Question,
    answer: Answer,
    confidence: float,
    threshold: float | Mapping[str, float],
) -> dict[str, Any]:
    if isinstance(threshold, Mapping):
        contested = len(_contested(answer)) if question.type == "choice" else len(question.options)
        name = bucket(question.type, contested)
        threshold = threshold.get(name, threshold.get("default", 0.0))
    if confidence < threshold:
        return {
            "low_confidence": True,
            "abstention": "abstained",
            "abstention_threshold": threshold,
        }
    return {"abstention": "passed", "abstention_threshold": threshold}


def _rounded(value: float) -> float:
    return round(value, 4)
