"""Requests that every model of these tests answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

STATE = "I was charged twice for my order and I want my money back before Friday."

QUESTIONS: Mapping[str, Any] = {
    "topic": {
        "type": "choice",
        "instructions": "What is the message about?",
        "criteria": {"billing": "charges, refunds", "shipping": None, "technical": "errors"},
    },
    "urgency": {
        "type": "score",
        "instructions": "How urgent is it?",
        "criteria": ["can wait", "this week", "today"],
    },
    "refund": {"type": "noul", "instructions": "Does the customer want a refund?"},
}

BODY: Mapping[str, Any] = {"model": "jev-latest", "state": STATE, "questions": QUESTIONS}


def body(number: int) -> dict[str, Any]:
    """A request unlike those of other numbers, in length as well."""
    state = f"Message {number}. {STATE} " + "It is still open. " * (number % 7)
    return {"model": "jev-latest", "state": state, "questions": dict(QUESTIONS)}


def numbers(answer: Mapping[str, Any]) -> list[float]:
    """The probabilities of one answer."""
    if answer["type"] == "noul":
        return [answer["noul"]]
    return list(answer["probabilities"].values())


def distance(one: Mapping[str, Any], other: Mapping[str, Any]) -> float:
    """The largest difference between the probabilities of two `answers` objects."""
    assert one.keys() == other.keys()
    return max(
        abs(a - b)
        for name in one
        for a, b in zip(numbers(one[name]), numbers(other[name]), strict=True)
    )
