"""The original's dialect: its grammar in, its fields and confidence out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from models_cuas1 import grammar
from models_cuas1.prompt import MULTIMODAL, TEXT
from models_cuas1.screen import image_of_url, is_picture
from system1_core.answers import Answer, ChoiceAnswer, Result
from system1_core.errors import InvalidRequest, TooLarge
from system1_core.request import EMPTY, Request
from system1_core.wire.dialect import Body, Dialect, RequestLimits

REVISION = "16818868b0cc7813808aae4e87b417657046ab79"
IDENTITY = f"cua-ai/cua-s1-4b-0.2@{REVISION}"


class ReferenceDialect(Dialect):
    """Errors are the protocol's, accepting and refusing is the original's.

    `modality` is that of the worker it stands for, None for both: a state that is an object of one
    image is then multimodal, any other is text.
    """

    def __init__(self, modality: str | None = None) -> None:
        self._modality = modality

    def parse(self, body: Body, limits: RequestLimits) -> Request:
        state = body.json.get("state") if isinstance(body.json, dict) else None
        return self._request(body.json, state, body.num_bytes)

    def parse_batch(self, body: Body, limits: RequestLimits) -> list[Request]:
        """The original has no such route: each state is read as a request of its own would be."""
        fields = body.json
        states = fields.get("states") if isinstance(fields, dict) else None
        if not isinstance(states, list) or not states:
            raise InvalidRequest.at(("states",), "states must be an array of at least 1 state")
        if len(states) > limits.max_states:
            raise TooLarge(f"{len(states)} states, limit {limits.max_states}")
        shared = {name: value for name, value in fields.items() if name != "states"}
        share = body.num_bytes // len(states)
        return [self._request(shared | {"state": state}, state, share) for state in states]

    def accepts_model(self, name: str) -> bool:
        """Any: `parse` refuses all names but the original's."""
        return True

    def render(self, request: Request, result: Result, model: str) -> dict[str, Any]:
        answers = {
            question.id: _answer(answer)
            for question, answer in zip(request.questions, result.answers, strict=True)
        }
        return {
            "model": f"{IDENTITY}:{result.extra['x_modality']}",
            "answers": answers,
            "usage": {"input_tokens": result.input_tokens, "output_tokens": 0},
        }

    def _request(self, fields: Any, state: Any, num_bytes: int) -> Request:
        modality = self._modality or (MULTIMODAL if is_picture(state) else TEXT)
        fields = grammar.check_body(fields, modality, num_bytes)
        images = EMPTY
        if modality == MULTIMODAL:
            if not is_picture(state):
                raise InvalidRequest.at(
                    ("state",), "state must be an object of one data URL: {'image': …}", "state"
                )
            image = image_of_url(state["image"])
            state, images = {"image": image.placeholder}, {image.placeholder: image}
        else:
            grammar.check_text_state(state)
            if self._modality is None:
                _refuse_mixed(state)
        return grammar.ReferenceRequest(
            model=grammar.MODEL,
            state=state,
            questions=grammar.read_questions(fields.get("questions"), modality),
            images=images,
            num_bytes=num_bytes,
        )


def _refuse_mixed(state: Any) -> None:
    """Served with both adapters, a state with an image is never read as text."""
    image = state.get("image") if isinstance(state, dict) else None
    if isinstance(image, str) and image.startswith("data:image/"):
        raise InvalidRequest.at(
            ("state",),
            f"the state has an image and {len(state) - 1} other fields; send the image alone",
            "image_misplaced",
        )


def _answer(answer: Answer) -> dict[str, Any]:
    assert isinstance(answer, ChoiceAnswer)
    return {
        "type": "choice",
        "choice": answer.choice,
        "probabilities": dict(answer.probabilities),
        "confidence": entropy_confidence(tuple(answer.probabilities.values())),
    }


def entropy_confidence(p: Sequence[float]) -> float:
    """1 - entropy / ln n, between 0 and 1; 1 for a single option."""
    if len(p) == 1:
        return 1.0
    entropy = -math.fsum(each * math.log(each) for each in p if each > 0)
    return min(1.0, max(0.0, 1 - entropy / math.log(len(p))))
