"""What a question looks like to the model: its texts, slot order and labels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from system1_core.request import Question, Request, json_text

NOUL_DESCRIPTIONS = {
    "false": "no, the statement does not hold",
    "true": "yes, the statement holds",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class LayaRequest(Request):
    """A request in the original's grammar; its questions' `extra` may hold labels and orders."""

    task: str | None = None
    lang: str | None = None
    lang_guess: str | None = None
    max_len: int | None = None
    head_max_len: int | None = None
    min_confidence: float | Mapping[str, float] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One question as the model reads it.

    `texts` and `labels` are in the request's order; `order` gives the option index of each slot,
    None for the natural one. Labels keep the JSON type a reference request gave them.
    """

    question: Question
    head: str
    texts: tuple[str, ...]
    labels: tuple[Any, ...]
    order: tuple[int, ...] | None = field(default=None)

    @property
    def type(self) -> str:
        return self.question.type


def make_asked(question: Question, *, is_reference: bool) -> Asked:
    """Render a checked question; a protocol question's unknown fields count for nothing."""
    instructions = "" if question.instructions is None else json_text(question.instructions)
    extra = question.extra if is_reference else {}
    order = extra.get("option_order")
    return Asked(
        question=question,
        head=f"{question.type} question: {instructions}",
        texts=_TEXTS[question.type](question, extra),
        labels=question.options,
        order=None if order is None else tuple(order),
    )


def _choice_texts(question: Question, extra: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(_described(str(label), text) for label, text in question.criteria.items())


def _score_texts(question: Question, extra: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(f"level {i}: {json_text(level)}" for i, level in enumerate(question.criteria))


def _noul_texts(question: Question, extra: Mapping[str, Any]) -> tuple[str, ...]:
    given = {key.lower(): value for key, value in (question.criteria or {}).items()}
    labels = extra.get("labels") or {}
    texts = []
    for side, default in NOUL_DESCRIPTIONS.items():
        description = default if given.get(side) in (None, "") else given[side]
        texts.append(f"{labels.get(side, side).strip()}: {json_text(description)}")
    return tuple(texts)


_TEXTS = {"choice": _choice_texts, "score": _score_texts, "noul": _noul_texts}


def _described(label: str, description: Any) -> str:
    if description is None or description == "":
        return label
    return f"{label}: {json_text(description)}"
