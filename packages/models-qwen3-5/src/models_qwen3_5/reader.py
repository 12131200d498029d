"""The prompt of the plain reader, and how its logits become probabilities."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from system1_core.errors import ConfigError
from system1_core.request import QUESTION_TYPES, Question, placeholder_pattern

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
SYSTEM = (
    "You judge a state. You are given the state, one question about it and a closed list of "
    "options, each with a letter. Answer with the letter of the option that fits best, and "
    "nothing else."
)
ASK = "Answer with one letter."
NO_INSTRUCTIONS = {
    "choice": "Which option fits the state best?",
    "score": "Which level describes the state best?",
    "noul": "Is this true of the state?",
}


Say = Callable[[Any], str]


def option_lines(question: Question, say: Say) -> list[str]:
    """What the options say, in the order of the answer; a noul's Yes comes first.

    `say` turns a name or an entry into the text that the model reads.
    """
    if question.type == "score":
        return [say(level) for level in question.criteria]
    if question.type == "noul":
        sides = question.criteria or {}
        named = [("Yes", sides.get("true")), ("No", sides.get("false"))]
    else:
        named = list(question.criteria.items())
    return [say(name) if entry is None else f"{say(name)}: {say(entry)}" for name, entry in named]


def state_text(state: str) -> str:
    """The first part of the user's turn behind the images, the same for every question."""
    return f"State:\n{state}\n\n"


def question_text(instructions: str, options: Sequence[str]) -> str:
    """The second part, down to the request for a letter."""
    lines = [f"{letter}. {option}" for letter, option in zip(LETTERS, options, strict=False)]
    return "\n".join([f"Question: {instructions}\n", "Options:", *lines, "", ASK])


class Mentions:
    """Replaces an image's placeholder by its number, wherever a string holds it."""

    def __init__(self, placeholders: Sequence[str]) -> None:
        self._numbers = {name: index for index, name in enumerate(placeholders, start=1)}
        self._pattern = placeholder_pattern(placeholders)

    def replaced(self, value: Any) -> Any:
        """`value` with "(image N)" for every placeholder in its strings, but for keys."""
        if isinstance(value, str):
            return self._pattern.sub(lambda m: f"(image {self._numbers[m.group()]})", value)
        if isinstance(value, Mapping):
            return {key: self.replaced(entry) for key, entry in value.items()}
        if isinstance(value, list):
            return [self.replaced(entry) for entry in value]
        return value


class PlainText:
    """Keeps a request's text from spelling the tokenizer's own tokens."""

    def __init__(self, added_tokens: Sequence[str]) -> None:
        names = sorted(filter(None, added_tokens), key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, names))) if names else None

    def of(self, text: str) -> str:
        """`text` with a space behind the first character of every added token it spells."""
        if self._pattern is None:
            return text
        return self._pattern.sub(lambda m: f"{m.group()[0]} {m.group()[1:]}", text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Temperatures:
    """What the logits of each question type are divided by."""

    choice: float = 1.0
    score: float = 1.0
    noul: float = 1.0

    def of(self, question: Question) -> float:
        return float(getattr(self, question.type))


def read_temperatures(path: str) -> Temperatures:
    """Temperatures by question type from a JSON file; a type that is not named keeps 1.

    Raises ConfigError for anything but positive numbers of known types.
    """
    file = Path(path)
    option = f"--option qwen3-5.temperatures={path}"
    try:
        values = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{option}: {error}; name a JSON file") from error
    if not isinstance(values, dict) or not set(values) <= set(QUESTION_TYPES):
        raise ConfigError(f"{option}: expected an object with {', '.join(QUESTION_TYPES)} only")
    for name, value in values.items():
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not 0 < value < math.inf:
            raise ConfigError(f"{option}: {name} is {value!r}, expected a positive number")
    return Temperatures(**values)


def groups_of(count: int) -> list[range]:
    """Options in even groups of at most 26, in order; one group where they fit."""
    rounds = math.ceil(count / len(LETTERS))
    bounds = [count * index // rounds for index in range(rounds + 1)]
    return [range(bounds[i], bounds[i + 1]) for i in range(rounds)]


def joined(groups: Sequence[Sequence[float]], final: Sequence[float]) -> list[float]:
    """Probabilities of all options from those within groups and those among the groups' winners.

    An option stands to its group's winner as within the group, and winners stand to each other
    as in the final round; so the final's winner is the most probable option.
    """
    weights = [
        chance * probability / max(group)
        for group, chance in zip(groups, final, strict=True)
        for probability in group
    ]
    total = math.fsum(weights)
    return [weight / total for weight in weights]
