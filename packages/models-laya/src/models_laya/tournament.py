"""Choices with more options than one pass tells apart: heats, then a final."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from models_laya.questions import Asked

# The original's bound on the options of one pass.
MAX_SINGLE_PASS_OPTIONS = 100
# The protocol's tournament for choices above it.
DEFAULT_GROUP = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Tournament:
    """When a choice is split, and into what: above `threshold`, in groups of about `group`."""

    group: int
    threshold: int

    def heats(self, alive: Sequence[int]) -> list[tuple[int, ...]]:
        """The near-equal groups of one round, in criteria order."""
        count = -(-len(alive) // self.group)
        bounds = [index * len(alive) // count for index in range(count + 1)]
        return [tuple(alive[begin:end]) for begin, end in pairwise(bounds)]


def make_tournament(group: int | None, *, is_reference: bool) -> Tournament | None:
    """The rule for one profile; `group` is the option, None where it was not set.

    Set, it splits every choice over it. Not set, the protocol splits only what the original
    refuses, and the original never does. 0 switches it off.
    """
    if group is None and not is_reference:
        return Tournament(group=DEFAULT_GROUP, threshold=MAX_SINGLE_PASS_OPTIONS)
    return Tournament(group=group, threshold=group) if group else None


def entrants(tournament: Tournament | None, asked: Sequence[Asked]) -> set[int]:
    """Which questions are split.

    A slot order or labels that are no text keep the whole request in one pass, unless that
    cannot hold some choice: then all of them are split (and refused where no text names them).
    """
    if tournament is None:
        return set()
    over = {
        index
        for index, each in enumerate(asked)
        if each.type == "choice" and len(each.labels) > tournament.threshold
    }
    must = any(len(asked[index].labels) > MAX_SINGLE_PASS_OPTIONS for index in over)
    plain = all(asked[index].order is None and _has_text_labels(asked[index]) for index in over)
    if not plain and not must:
        return set()
    for index in over:
        if not _has_text_labels(asked[index]):
            raise asked[index].question.invalid(
                f"{len(asked[index].labels)} options run as a tournament, which needs string "
                "labels: write every label as a string, or send fewer options",
                "criteria",
            )
    return over


def _has_text_labels(asked: Asked) -> bool:
    return all(isinstance(label, str) for label in asked.labels)
