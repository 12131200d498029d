"""The original's dialect: images as data URLs in, its fields and rounding out."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from models_omnijev.calibration import confidence
from models_omnijev.grammar import read_question, read_video
from models_omnijev.limits import LIMITS
from models_omnijev.questions import Asked, OmnijevQuestion, OmnijevRequest
from system1_core.answers import Answer, ChoiceAnswer, NoulAnswer, Result, ScoreAnswer
from system1_core.errors import MISSING, InvalidRequest, TooLarge
from system1_core.request import Image, Request
from system1_core.wire.dialect import Body, Dialect, RequestLimits
from system1_core.wire.image_bytes import decode_url, image_of
from system1_core.wire.problems import Problems, kind_of

MODEL = "tinnel123/OmniJev"


class ReferenceDialect(Dialect):
    """What the original accepts, and what it answers; errors are the protocol's."""

    def parse(self, body: Body, limits: RequestLimits) -> OmnijevRequest:
        fields = _fields(body)
        questions = _questions(fields)
        state = fields.get("state", MISSING)
        return _request(fields, state, ("state",), questions, limits, body.num_bytes)

    def parse_batch(self, body: Body, limits: RequestLimits) -> list[Request]:
        fields = _fields(body)
        questions = _questions(fields)
        states = fields.get("states", MISSING)
        if not isinstance(states, list) or not 1 <= len(states) <= limits.max_states:
            msg = f"states: must be an array of 1 to {limits.max_states} states"
            raise InvalidRequest.at(("states",), msg, "value_error", states)
        share = body.num_bytes // len(states)
        return [
            _request(fields, state, ("states", index), questions, limits, share)
            for index, state in enumerate(states)
        ]

    def render(self, request: Request, result: Result, model: str) -> dict[str, Any]:
        answers = {}
        for question, answer in zip(request.questions, result.answers, strict=True):
            assert isinstance(question, OmnijevQuestion)
            answers[question.id] = _shown(question.asked, answer)
        usage = {"input_tokens": result.input_tokens, "output_tokens": result.output_tokens}
        return {"model": MODEL, "answers": answers, "usage": usage}


def _fields(body: Body) -> Mapping[str, Any]:
    if body.num_bytes > LIMITS.body_bytes:
        raise TooLarge(f"body of {body.num_bytes} bytes, limit {LIMITS.body_bytes}: send less")
    if not isinstance(body.json, dict):
        msg = f"the body must be an object, got {kind_of(body.json)}"
        raise InvalidRequest.at((), msg, "dict_type")
    return body.json


def _questions(fields: Mapping[str, Any]) -> tuple[OmnijevQuestion, ...]:
    entries = fields.get("questions", MISSING)
    if not isinstance(entries, dict) or not entries:
        msg = "questions: must be an object of questions by id, 1 at least"
        raise InvalidRequest.at(("questions",), msg, "missing", entries)
    return tuple(read_question(name, entry) for name, entry in entries.items())


def _request(
    fields: Mapping[str, Any],
    state: Any,
    loc: tuple[str | int, ...],
    questions: tuple[OmnijevQuestion, ...],
    limits: RequestLimits,
    num_bytes: int,
) -> OmnijevRequest:
    model = fields.get("model")
    if model is not None and not isinstance(model, str):
        raise InvalidRequest.at(("model",), "model: must be a string", "type_error", model)
    if not isinstance(state, dict):
        msg = f"{loc[0]}: must be an object with images, got {kind_of(state)}"
        raise InvalidRequest.at(loc, msg, "dict_type", state)
    text = state.get("text")
    if text is not None and not isinstance(text, str):
        raise InvalidRequest.at((*loc, "text"), "state.text: must be a string", "type_error", text)
    return OmnijevRequest(
        model=model,
        state=text or "",
        questions=questions,
        images=_images(state.get("images", MISSING), (*loc, "images"), limits),
        video=read_video(state.get("video")),
        num_bytes=num_bytes,
    )


def _images(entries: Any, loc: tuple[str | int, ...], limits: RequestLimits) -> Mapping[str, Image]:
    if not isinstance(entries, list) or not entries:
        msg = "state.images: must be an array of data URLs, 1 at least"
        raise InvalidRequest.at(loc, msg, "missing", entries)
    if len(entries) > limits.max_images:
        msg = f"state.images: {len(entries)} images, limit {limits.max_images}"
        raise InvalidRequest.at(loc, msg, "too_long")
    max_bytes = min(limits.max_image_bytes, LIMITS.image_bytes)
    problems = Problems()
    images = {}
    for index, entry in enumerate(entries):
        content = decode_url(entry, (*loc, index), problems, max_bytes)
        if content is not None:
            name = f"{loc[-1]}[{index}]"
            image = image_of(content, name, (*loc, index), problems, max_bytes)
            if image is not None:
                images[name] = image
    problems.raise_if_any()
    return images


def _shown(asked: Asked, answer: Answer) -> dict[str, Any]:
    if isinstance(answer, NoulAnswer):
        return {"noul": _rounded(answer.probability)}
    if isinstance(answer, ScoreAnswer):
        levels = list(answer.probabilities)
        return {
            "score": asked.keys[levels.index(max(levels))],
            "probabilities": _by_key(asked, levels),
            "confidence": _rounded(confidence(levels)),
        }
    return _choice(asked, answer)


def _choice(asked: Asked, answer: ChoiceAnswer) -> dict[str, Any]:
    probabilities = list(answer.extra["x_probabilities"].values())
    abstain = answer.extra["x_abstain"]
    return {
        "choice": asked.keys[probabilities.index(max(probabilities))],
        "probabilities": _by_key(asked, probabilities),
        "abstain": _rounded(abstain),
        "valid": answer.extra["x_valid"],
        "confidence": _rounded(confidence([*probabilities, abstain])),
    }


def _by_key(asked: Asked, probabilities: list[float]) -> dict[str, float]:
    """Keys as the original's JSON writes them; of equal keys the last one counts."""
    by_key = {key: _rounded(p) for key, p in zip(asked.keys, probabilities, strict=True)}
    return {key if isinstance(key, str) else json.dumps(key): p for key, p in by_key.items()}


def _rounded(value: float) -> float:
    return round(value, 4)
