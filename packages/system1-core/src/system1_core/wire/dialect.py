"""What a dialect is: one JSON grammar for requests, answers and errors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from system1_core.answers import Result
from system1_core.errors import InvalidRequest, System1Error
from system1_core.request import Request


@dataclass(frozen=True, slots=True, kw_only=True)
class Body:
    """A decoded body: strict JSON, and the binary parts of a multipart request by part name."""

    json: Any
    num_bytes: int = 0
    parts: dict[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestLimits:
    """What one request may hold; OpenAI's shape has a limit on questions of its own."""

    max_questions: int = 256
    max_decisions: int = 400
    max_options: int = 255
    max_levels: int = 10
    max_total_options: int = 8_192
    max_states: int = 64
    max_text_chars: int = 400_000
    max_images: int = 64
    max_image_bytes: int = 16 * 2**20


class Dialect:
    """Parses a body into a request and renders results and errors in the same grammar."""

    def parse(self, body: Body, limits: RequestLimits) -> Request:
        """Raises `InvalidRequest` with the place of each problem."""
        raise NotImplementedError

    def parse_batch(self, body: Body, limits: RequestLimits) -> list[Request]:
        """One request for each of the body's `states`, all with its questions."""
        raise NotImplementedError

    def render(self, request: Request, result: Result, model: str) -> dict[str, Any]:
        """The response body; `model` is the served name that answered."""
        raise NotImplementedError

    def render_batch(
        self, requests: Sequence[Request], results: Sequence[Result], model: str
    ) -> dict[str, Any]:
        """The response body of the batch route, results in the order of the states."""
        bodies = [
            self.render(request, result, model)
            for request, result in zip(requests, results, strict=True)
        ]
        total = {
            "input_tokens": sum(result.input_tokens for result in results),
            "output_tokens": sum(result.output_tokens for result in results),
        }
        return {"results": bodies, "total_usage": total}

    def accepts_model(self, name: str) -> bool:
        """Whether a `model` that no served family claims still means this dialect's family."""
        return False

    def error(self, error: System1Error) -> dict[str, Any]:
        """The body of an error: a `detail` list for a 422, else type and message."""
        if isinstance(error, InvalidRequest):
            return {"detail": [problem.as_json() for problem in error.problems]}
        return {"detail": {"error_type": error.error_type, "message": error.message}}
