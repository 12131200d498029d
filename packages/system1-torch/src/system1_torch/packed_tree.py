"""Segments of a packed stream that continue one another: the shape behind prefix sharing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class PackedTree:
    """N segments, packed without padding, each a root or the continuation of an earlier one.

    Segment n holds rows `starts[n]` to `starts[n + 1]` and continues segment `parents[n]` (-1: it
    starts a sequence). Segments are ordered by depth; depth d holds segments `levels[d]` to
    `levels[d + 1]`. The tensors repeat this on the device: cu_seqlens [N + 1] and parent_index
    [N], int32; history [T, W], int64, is the row of the token 1, 2, ... W places before each row
    of T, through the parents, -1 before the first token.
    """

    starts: tuple[int, ...]
    parents: tuple[int, ...]
    levels: tuple[int, ...]
    cu_seqlens: Tensor
    parent_index: Tensor
    history: Tensor

    @property
    def num_tokens(self) -> int:
        return self.starts[-1]

    @property
    def num_segments(self) -> int:
        return len(self.parents)

    def rows(self, segment: int) -> range:
        """The rows of one segment."""
        return range(self.starts[segment], self.starts[segment + 1])

    def ancestors(self, segment: int) -> list[int]:
        """What a segment continues, from the root down to its parent."""
        chain: list[int] = []
        while (segment := self.parents[segment]) >= 0:
            chain.append(segment)
        return chain[::-1]


def make_packed_tree(
    lengths: Sequence[int],
    parents: Sequence[int],
    *,
    history: int = 3,
    device: torch.device | str = "cpu",
) -> PackedTree:
    """The tables of a tree from its segments' lengths and parents, in order of depth.

    Raises ValueError for an empty segment, a parent that does not precede its child, or segments
    out of order.
    """
    if len(lengths) != len(parents) or not lengths:
        raise ValueError(f"{len(lengths)} lengths and {len(parents)} parents; expected 1 or more")
    if min(lengths) < 1:
        raise ValueError("a segment holds no token; leave it out")
    starts = [0]
    for length in lengths:
        starts.append(starts[-1] + length)
    cu_seqlens = torch.tensor(starts, dtype=torch.int32)
    return PackedTree(
        starts=tuple(starts),
        parents=tuple(parents),
        levels=_levels(parents),
        cu_seqlens=cu_seqlens.to(device),
        parent_index=torch.tensor(parents, dtype=torch.int32).to(device),
        history=_history(starts, parents, history).to(device),
    )


def _levels(parents: Sequence[int]) -> tuple[int, ...]:
    depths: list[int] = []
    for segment, parent in enumerate(parents):
        if not -1 <= parent < segment:
            raise ValueError(f"segment {segment} has parent {parent}; expected an earlier one")
        depths.append(0 if parent < 0 else depths[parent] + 1)
    if depths != sorted(depths):
        raise ValueError("segments are not in order of depth")
    bounds = [
        segment
        for segment, depth in enumerate(depths)
        if segment == 0 or depth != depths[segment - 1]
    ]
    return (*bounds, len(depths))


def _history(starts: Sequence[int], parents: Sequence[int], width: int) -> Tensor:
    previous = torch.arange(-1, starts[-1] - 1)
    for segment, parent in enumerate(parents):
        previous[starts[segment]] = -1 if parent < 0 else starts[parent + 1] - 1
    columns = [previous]
    for _ in range(width - 1):
        last = columns[-1]
        columns.append(torch.where(last < 0, last, previous[last.clamp(min=0)]))
    return torch.stack(columns, dim=1)
