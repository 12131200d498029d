"""Units of work: a text to embed, and a question whose cosines are wanted."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from system1_core.processor import Prompt

Vector = NDArray[np.float32]


@dataclass(frozen=True, slots=True, eq=False)
class TextPrompt(Prompt):
    """One text without an embedding yet.

    `token_ids` is empty where another process tokenises. `is_cut` says that they are the last
    ones of more.
    """

    text: str = field(kw_only=True)
    is_cut: bool = field(default=False, kw_only=True)


@dataclass(frozen=True, slots=True, eq=False)
class ScorePrompt(Prompt):
    """One question, its embeddings known; `head` is the head's name.

    `texts` says what the candidates are: equal texts have equal embeddings.
    """

    head: str = field(kw_only=True)
    state: Vector = field(kw_only=True)
    candidates: tuple[Vector, ...] = field(kw_only=True)
    texts: tuple[str, ...] = field(kw_only=True)


@dataclass(frozen=True, slots=True, eq=False)
class Embedded:
    """The embedding of one text, unit length float32 [H], and the tokens it cost."""

    vector: Vector
    num_tokens: int = 0
    is_cut: bool = False


@dataclass(frozen=True, slots=True)
class Cosines:
    """One question's cosines in the order of its candidates, and their scale."""

    values: tuple[float, ...]
    scale: float
