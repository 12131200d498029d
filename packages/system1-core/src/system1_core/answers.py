"""Answer types, and the arithmetic that families share."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from system1_core.request import EMPTY, Question


def one_hot(options: Sequence[str], index: int) -> dict[str, float]:
    """Probability 1 for `options[index]`, 0 for the rest."""
    return {option: float(i == index) for i, option in enumerate(options)}


def softmax(logits: Sequence[float], temperature: float = 1.0) -> list[float]:
    """softmax(logits / temperature) in float64, the maximum subtracted."""
    top = max(logits)
    weights = [math.exp((logit - top) / temperature) for logit in logits]
    total = math.fsum(weights)
    return [weight / total for weight in weights]


def choice_confidence(probabilities: Sequence[float]) -> float:
    """(m - 1/n) / (1 - 1/n) for the largest probability m of n; 1 for a single option."""
    n = len(probabilities)
    if n == 1:
        return 1.0
    return min(1.0, max(0.0, (max(probabilities) - 1 / n) / (1 - 1 / n)))


def score_confidence(probabilities: Sequence[float]) -> float:
    """max(0, 1 - spread around the mode / spread of a uniform answer); 1 for a single level."""
    n = len(probabilities)
    if n == 1:
        return 1.0
    mode = probabilities.index(max(probabilities))
    spread = math.fsum(p * abs(level - mode) for level, p in enumerate(probabilities))
    uniform = math.fsum(abs(level - (n - 1) / 2) for level in range(n)) / n
    return min(1.0, max(0.0, 1 - spread / uniform))


@dataclass(frozen=True, slots=True, kw_only=True)
class ChoiceAnswer:
    """Probabilities by option name, in request order, summing to 1.

    `extra` is shown beside the answer; its names start with "x_".
    """

    probabilities: Mapping[str, float]
    extra: Mapping[str, Any] = field(default_factory=lambda: EMPTY)

    @property
    def choice(self) -> str:
        """The most probable option, the first one on ties."""
        return max(self.probabilities, key=self.probabilities.__getitem__)

    @property
    def confidence(self) -> float:
        """The protocol's formula for a choice."""
        return choice_confidence(tuple(self.probabilities.values()))

    def as_json(self, question: Question) -> dict[str, Any]:
        """The protocol's answer object."""
        return {
            "type": "choice",
            "choice": self.choice,
            "probabilities": dict(self.probabilities),
            "confidence": self.confidence,
            **self.extra,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreAnswer:
    """Probabilities by level, lowest first, summing to 1."""

    probabilities: Sequence[float]
    extra: Mapping[str, Any] = field(default_factory=lambda: EMPTY)

    @property
    def score(self) -> float:
        """The expected level, 0 to n - 1."""
        return math.fsum(level * p for level, p in enumerate(self.probabilities))

    @property
    def confidence(self) -> float:
        """The protocol's formula for a score."""
        return score_confidence(tuple(self.probabilities))

    def as_json(self, question: Question) -> dict[str, Any]:
        """The protocol's answer object; `legend` echoes the request's levels."""
        return {
            "type": "score",
            "score": self.score,
            "legend": {str(i): level for i, level in enumerate(question.criteria)},
            "probabilities": {str(i): p for i, p in enumerate(self.probabilities)},
            "confidence": self.confidence,
            **self.extra,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class NoulAnswer:
    """P(yes)."""

    probability: float
    extra: Mapping[str, Any] = field(default_factory=lambda: EMPTY)

    @property
    def confidence(self) -> float:
        """max(p, 1 - p), which the wire does not show but metrics count."""
        return max(self.probability, 1 - self.probability)

    def as_json(self, question: Question) -> dict[str, Any]:
        """The protocol's answer object: a noul has no confidence."""
        return {"type": "noul", "noul": self.probability, **self.extra}


Answer = ChoiceAnswer | ScoreAnswer | NoulAnswer

_TYPE_OF = {"choice": ChoiceAnswer, "score": ScoreAnswer, "noul": NoulAnswer}


def fault(question: Question, answer: Answer) -> str | None:
    """What is wrong with a model's answer to `question`, or None.

    A wrong type, wrong keys, a number that is not finite or a sum that is not 1 within 1e-3.
    """
    if not isinstance(answer, _TYPE_OF[question.type]):
        return f"question {question.id!r}: a {question.type} got {type(answer).__name__}"
    if isinstance(answer, NoulAnswer):
        values: tuple[float, ...] = (answer.probability, 1 - answer.probability)
    elif isinstance(answer, ChoiceAnswer):
        if tuple(answer.probabilities) != question.options:
            return f"question {question.id!r}: probabilities are not keyed by its options"
        values = tuple(answer.probabilities.values())
    else:
        values = tuple(answer.probabilities)
    if len(values) != len(question.options):
        return f"question {question.id!r}: {len(values)} probabilities"
    if not all(-1e-6 <= value <= 1 + 1e-6 for value in values):  # false for NaN as well
        return f"question {question.id!r}: a probability is not between 0 and 1"
    if abs(math.fsum(values) - 1) > 1e-3:
        return f"question {question.id!r}: probabilities sum to {math.fsum(values)}"
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """All answers of one request, in question order, and what it cost.

    `extra` is shown at the top level of the response; its names start with "x_". `model` names
    the part that answered, where a family routes among several. A processor may return a bare
    list of answers: the engine then counts the tokens of every prompt it ran.
    """

    answers: Sequence[Answer]
    input_tokens: int
    output_tokens: int = 0
    model: str | None = None
    extra: Mapping[str, Any] = field(default_factory=lambda: EMPTY)
