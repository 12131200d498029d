"""What families hand over: whole sequences, the images in them, and what to read where."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

from models_qwen3_5.images import PreparedImage
from system1_core.processor import Prompt


@dataclass(frozen=True, slots=True)
class ImageSpan:
    """An image whose placeholder tokens begin at `start` in the sequence."""

    start: int
    image: PreparedImage

    @property
    def stop(self) -> int:
        return self.start + self.image.num_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Reads:
    """What one sequence wants to know; positions count from its first token.

    `hidden`: positions of final-norm rows. `logits`: positions at which to read the logits of
    `logit_ids`. `logprobs`: pairs (position, token id), the log-probability of the token under
    the whole vocabulary, as the network predicts it at that position.
    """

    hidden: tuple[int, ...] = ()
    logits: tuple[int, ...] = ()
    logit_ids: tuple[int, ...] = ()
    logprobs: tuple[tuple[int, int], ...] = ()

    @property
    def positions(self) -> set[int]:
        return {*self.hidden, *self.logits, *(position for position, _ in self.logprobs)}


@dataclass(frozen=True, slots=True, eq=False)
class SequencePrompt(Prompt):
    """One whole sequence. Families cut nothing: the planner finds what sequences share.

    `images` are in order and do not overlap. `key` [T] int64 tells tokens apart as the network
    sees them: token ids, and for placeholders a negative number that stands for their image. It
    is made here unless a family with many sequences alike has it already.
    """

    reads: Reads = field(kw_only=True)
    images: tuple[ImageSpan, ...] = field(default=(), kw_only=True)
    key: np.ndarray = field(default=None, kw_only=True, repr=False)  # type: ignore[arg-type]

    def __post_init__(self) -> None:
        if self.key is None:
            object.__setattr__(self, "key", make_key(self.token_ids, self.images))


def make_key(token_ids: Sequence[int], images: Sequence[ImageSpan] = ()) -> np.ndarray:
    """The key of a sequence, or of its beginning if that holds all images."""
    key = np.array(token_ids, dtype=np.int64)
    for span in images:
        key[span.start : span.stop] = span.image.number
    return key


def common_prefix(first: np.ndarray, second: np.ndarray) -> int:
    """How many leading entries of two keys are equal."""
    length = min(len(first), len(second))
    differs = first[:length] != second[:length]
    place = int(differs.argmax()) if length else 0
    return place if length and differs[place] else length


@dataclass(frozen=True, slots=True, kw_only=True)
class Readout:
    """The answers to one sequence's reads, in their order, fp32 on the model's device.

    Shapes: hidden [len(hidden), D]; logits [len(logits), len(logit_ids)]; logprobs [n].
    """

    hidden: torch.Tensor
    logits: torch.Tensor
    logprobs: torch.Tensor
