"""How much text one request may hold, whatever its model does with it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from system1_core.errors import TooLarge
from system1_core.request import Question, Request
from system1_core.wire.dialect import RequestLimits


def check_text_size(requests: Sequence[Request], limits: RequestLimits) -> None:
    """Raises TooLarge for a request of one body that is over `max_text_chars`.

    Tokenising is linear, and a megabyte takes a second. Counts the characters of all strings and
    keys in the state and the questions; images are not text.
    """
    # A character is at least one byte of the body, so most bodies need no count.
    if sum(request.num_bytes for request in requests) <= limits.max_text_chars:
        return
    for request in requests:
        check_texts(request.state, request.questions, limits)


def check_texts(
    state: Any,
    questions: Iterable[Question],
    limits: RequestLimits,
    what: str = "state and questions",
) -> None:
    """Raises TooLarge where a state and its questions are over `max_text_chars`."""
    count = _num_chars(state) + sum(
        _num_chars(question.instructions) + _num_chars(question.criteria) for question in questions
    )
    if count > limits.max_text_chars:
        raise TooLarge(
            f"{what} hold {count} characters, limit {limits.max_text_chars}: "
            "send less, or start the server with a higher --max-text-chars"
        )


def _num_chars(value: Any) -> int:
    if isinstance(value, str):
        return len(value)
    if isinstance(value, dict):
        return sum(len(key) + _num_chars(member) for key, member in value.items())
    if isinstance(value, list):
        return sum(map(_num_chars, value))
    if isinstance(value, int):
        return 1 + int(value.bit_length() * 0.302)  # decimal digits, without writing them
    return 8  # a fraction, or null
