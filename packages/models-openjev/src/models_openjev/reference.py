"""The original's dialect: its grammar in, its fields out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from models_openjev.grammar import check_state, read_model, read_questions
from system1_core.answers import Answer, Result
from system1_core.errors import InvalidRequest, TooLarge
from system1_core.request import Question, Request
from system1_core.wire.dialect import Body, Dialect, RequestLimits

MAX_BODY_BYTES = 4 * 2**20
METHOD = "lora_decision_head"
_ORDER = {
    "noul": ("type", "noul"),
    "choice": ("type", "choice", "probabilities", "confidence"),
    "score": ("type", "score", "probabilities", "confidence", "legend"),
}


class ReferenceDialect(Dialect):
    """Strict where the protocol is lenient, and answers that carry metadata."""

    def parse(self, body: Body, limits: RequestLimits) -> Request:
        fields = _fields(body, "state")
        model = read_model(fields)
        check_state(fields["state"], "state")
        questions = read_questions(fields["questions"])
        return Request(
            model=model, state=fields["state"], questions=questions, num_bytes=body.num_bytes
        )

    def parse_batch(self, body: Body, limits: RequestLimits) -> list[Request]:
        """The original has no such route: its own grammar with `states` instead of `state`."""
        fields = _fields(body, "states")
        model, states = read_model(fields), fields["states"]
        if not isinstance(states, list) or not 1 <= len(states) <= limits.max_states:
            msg = f"states: must be an array of 1 to {limits.max_states} states"
            raise InvalidRequest.at(("states",), msg, "type_error", states)
        for index, state in enumerate(states):
            check_state(state, "states", index)
        questions = read_questions(fields["questions"])
        share = body.num_bytes // len(states)
        return [
            Request(model=model, state=state, questions=questions, num_bytes=share)
            for state in states
        ]

    def render(self, request: Request, result: Result, model: str) -> dict[str, Any]:
        asked = zip(request.questions, result.answers, strict=True)
        metadata = dict(result.extra["x_metadata"])
        model_id = metadata.pop("model_id")
        return {
            "model": model_id,
            "answers": {question.id: _render(question, answer) for question, answer in asked},
            "usage": {
                "input_tokens": result.input_tokens,
                "output_tokens": result.output_tokens,
            },
            "metadata": {
                "method": METHOD,
                **metadata,
                **_seconds(result.extra.get("x_timing")),
                "prefix_cache": {"enabled": False, "mode": "independent_candidates"},
            },
        }


def _fields(body: Body, state: str) -> Mapping[str, Any]:
    """The body's object, with what it must have."""
    if body.num_bytes > MAX_BODY_BYTES:
        raise TooLarge(f"body of {body.num_bytes} bytes, limit {MAX_BODY_BYTES}")
    if body.parts:
        raise InvalidRequest.at((), "this model reads text only: send plain JSON without parts")
    fields = body.json
    if not isinstance(fields, dict) or state not in fields or "questions" not in fields:
        raise InvalidRequest.at((), f"the body must be an object with {state} and questions")
    return fields


def _render(question: Question, answer: Answer) -> dict[str, Any]:
    shown = answer.as_json(question)
    return {name: shown[name] for name in _ORDER[question.type]}


def _seconds(timing: Mapping[str, float] | None) -> dict[str, float]:
    return {} if timing is None else {"inference_seconds": sum(timing.values()) / 1e3}
