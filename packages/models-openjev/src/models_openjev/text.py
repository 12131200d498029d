"""Candidates as text: the literal templates the model was trained with."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from system1_core.request import Question

# Each ends a line, and a letter begins the next part: no token spans them.
_HEAD = "Context:\n{state}\n\n"
_QUESTION = "Question: {question}\n"
_CANDIDATE = "Proposed answer: {answer}\nIs this proposed answer correct? Answer Yes or No."
_NOUL = "Is the answer to this question yes? Answer Yes or No."


def render(value: Any) -> str:
    """A string as it is, anything else as JSON, keys sorted by code point."""
    return (
        value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, sort_keys=True)
    )


def head_text(state: Any) -> str:
    """What all candidates of a request begin with."""
    return _HEAD.format(state=render(state))


def question_text(question: Question) -> str:
    """What all candidates of a question share behind the head.

    The original demands instructions and both sides of a noul. The protocol does not: without
    instructions the question is empty, and a side that lacks is left out.
    """
    text = "" if question.instructions is None else render(question.instructions)
    if question.type == "noul":
        for side, label in (("true", "Yes"), ("false", "No")):
            if (meaning := (question.criteria or {}).get(side)) is not None:
                text += f"\n{label} means: {render(meaning)}"
    return _QUESTION.format(question=text)


def candidate_texts(question: Question) -> Sequence[str]:
    """How each candidate of a question ends; a noul is one sequence."""
    if question.type == "noul":
        return (_NOUL,)
    if question.type == "score":
        answers = [render(level) for level in question.criteria]
    else:
        answers = [
            name if meaning is None else f"{name}: {render(meaning)}"
            for name, meaning in question.criteria.items()
        ]
    return [_CANDIDATE.format(answer=answer) for answer in answers]
