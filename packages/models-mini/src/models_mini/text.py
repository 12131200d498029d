"""The texts the network reads: one for the state, one for each candidate of a question."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from system1_core import json_text

_TRUTH_WORD = re.compile(r"(?<![^\W_])(?:true|false)(?![^\W_])", re.IGNORECASE)  # "_" is a border
# The punctuation that ties such a word to its neighbours, and goes with it.
_BEFORE = " \t\r\n,;:([{\"'“‘*=/|<_`#-"
_AFTER = " \t\r\n,;:.!)]}\"'”’*=/|>_`-"


def entry_text(entry: Any) -> str:
    """An entry as text: strings without a final full stop, objects and arrays as JSON text.

    Booleans inside them are read as "yes" and "no", None alone as nothing.
    """
    return "" if entry is None else json_text(_read(entry, _trimmed))


def plain_text(entry: Any) -> str:
    """`entry_text` without the words true and false.

    A yes/no question must not be answered by these words standing somewhere, so noul never reads
    them. Keys of objects stay as they are.
    """
    return "" if entry is None else json_text(_read(entry, _without_truth_words))


def _read(value: Any, read_string: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return read_string(value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return {key: _read(item, read_string) for key, item in value.items()}
    if isinstance(value, Sequence):
        return [_read(item, read_string) for item in value]
    return value


def _trimmed(text: str) -> str:
    # Both readings of a state trim alike, so that a request of several types encodes it once.
    return text.strip().rstrip(".").rstrip()


def _without_truth_words(text: str) -> str:
    first, *rest = _TRUTH_WORD.split(text)
    if not rest:
        return _trimmed(text)
    pieces = [first, *(piece.lstrip(_AFTER) for piece in rest)]
    pieces[:-1] = [piece.rstrip(_BEFORE) for piece in pieces[:-1]]
    return _trimmed(" ".join(piece for piece in pieces if piece))


def choice_texts(instructions: Any, criteria: Mapping[str, Any]) -> list[str]:
    """One text for each option: the question, the option's name, its description."""
    question = entry_text(instructions)
    return [
        _join(question, _labelled(name, entry_text(description)))
        for name, description in criteria.items()
    ]


def score_texts(instructions: Any, levels: Sequence[Any]) -> list[str]:
    """One text for each level, lowest first."""
    question = entry_text(instructions)
    return [_join(question, entry_text(level)) for level in levels]


def noul_texts(instructions: Any, criteria: Mapping[str, Any] | None) -> list[str]:
    """The text of "no", then the text of "yes"; a side without a description is the bare word."""
    question, sides = plain_text(instructions), criteria or {}
    return [
        _join(question, _labelled(word, plain_text(sides.get(side))))
        for word, side in (("no", "false"), ("yes", "true"))
    ]


def noul_text(instructions: Any, criteria: Mapping[str, Any] | None) -> str:
    """The whole yes/no question as one text: the question and what is said of its sides."""
    question, sides = plain_text(instructions), criteria or {}
    described = [
        _labelled(word, description)
        for word, side in (("yes", "true"), ("no", "false"))
        if (description := plain_text(sides.get(side)))
    ]
    return _join(question, ", ".join(described)) if described else question


def _labelled(name: str, description: str) -> str:
    return f"{name}: {description}" if description else name


def _join(question: str, candidate: str) -> str:
    return f"{question} {candidate}" if question else candidate
