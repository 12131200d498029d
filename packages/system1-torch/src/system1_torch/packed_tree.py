"""Segments of a packed stream that continue one another: the shape behind prefix sharing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

# Kernels take a segment's rows in runs of so many.
CHUNK_ROWS = 64


@dataclass(frozen=True, slots=True)
class PackedTree:
    """N segments, packed without padding, each a root or the continuation of an earlier one.

    Segment n holds rows `starts[n]` to `starts[n + 1]` and continues segment `parents[n]` (-1: it
    starts a sequence). Segments are ordered by depth; depth d holds segments `levels[d]` to
    `levels[d + 1]`. The tensors repeat this on the device, int32: cu_seqlens [N + 1], parent_index
    [N]; chunks [C, 2], segment and first row of each run of up to CHUNK_ROWS rows, (-1, -1) behind
    the last; chunk_starts [N + 1], the first chunk of each segment. history [T, W], int64, is the
    row of the token 1, 2, ... W places before each row of T, through the parents, -1 before the
    first token.

    A tree in a CUDA graph is known to the device alone: the tuples are empty, the last segments
    may be empty too, and rows behind `cu_seqlens[N]` belong to none; operations leave them
    unspecified.
    """

    starts: tuple[int, ...]
    parents: tuple[int, ...]
    levels: tuple[int, ...]
    cu_seqlens: Tensor
    parent_index: Tensor
    chunks: Tensor
    chunk_starts: Tensor
    history: Tensor

    @property
    def num_tokens(self) -> int:
        self.require_host()
        return self.starts[-1]

    @property
    def num_segments(self) -> int:
        self.require_host()
        return len(self.parents)

    def rows(self, segment: int) -> range:
        """The rows of one segment."""
        self.require_host()
        return range(self.starts[segment], self.starts[segment + 1])

    def ancestors(self, segment: int) -> list[int]:
        """What a segment continues, from the root down to its parent."""
        self.require_host()
        chain: list[int] = []
        while (segment := self.parents[segment]) >= 0:
            chain.append(segment)
        return chain[::-1]

    def require_host(self) -> None:
        """Raises RuntimeError for a tree known to the device only: its tuples say nothing."""
        if not self.starts:
            raise RuntimeError("this tree is known to the device only: no reference can run on it")


class TreeTables(NamedTuple):
    """The tables of a tree on the host, int32, in the shapes that `PackedTree` tells."""

    cu_seqlens: np.ndarray
    parent_index: np.ndarray
    chunks: np.ndarray
    chunk_starts: np.ndarray
    history: np.ndarray


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
    tables = make_tables(lengths, parents, history=history)
    tensors = [torch.from_numpy(table).to(device) for table in tables]
    return tree_of(lengths, parents, *tensors)


def tree_of(
    lengths: Sequence[int],
    parents: Sequence[int],
    cu_seqlens: Tensor,
    parent_index: Tensor,
    chunks: Tensor,
    chunk_starts: Tensor,
    history: Tensor,
) -> PackedTree:
    """A tree of tables that are on the device already; history may be int32.

    Without lengths it is known to the device only.
    """
    starts = np.cumsum([0, *lengths]).tolist() if lengths else []
    return PackedTree(
        starts=tuple(starts),
        parents=tuple(parents),
        levels=_levels(parents) if lengths else (),
        cu_seqlens=cu_seqlens,
        parent_index=parent_index,
        chunks=chunks,
        chunk_starts=chunk_starts,
        history=history.long(),
    )


def make_tables(
    lengths: Sequence[int],
    parents: Sequence[int],
    *,
    history: int = 3,
    num_tokens: int | None = None,
    num_segments: int | None = None,
) -> TreeTables:
    """A tree's tables, padded to `num_tokens` rows and `num_segments` segments where given.

    Raises ValueError as `make_packed_tree`.
    """
    if len(lengths) != len(parents) or not lengths:
        raise ValueError(f"{len(lengths)} lengths and {len(parents)} parents; expected 1 or more")
    if min(lengths) < 1:
        raise ValueError("a segment holds no token; leave it out")
    _levels(parents)
    segments = num_segments or len(lengths)
    sizes = np.zeros(segments, dtype=np.int64)
    sizes[: len(lengths)] = lengths
    above = np.full(segments, -1, dtype=np.int64)
    above[: len(parents)] = parents
    bounds = np.concatenate([[0], sizes.cumsum()])
    counts = -(-sizes // CHUNK_ROWS)
    firsts = np.concatenate([[0], counts.cumsum()])
    tokens = num_tokens or int(bounds[-1])
    capacity = int(firsts[-1]) if num_tokens is None else num_chunks(tokens, segments)
    chunks = np.full((capacity, 2), -1, dtype=np.int32)
    owner = np.repeat(np.arange(segments), counts)
    chunks[: len(owner), 0] = owner
    chunks[: len(owner), 1] = bounds[owner] + CHUNK_ROWS * (np.arange(len(owner)) - firsts[owner])
    return TreeTables(
        cu_seqlens=bounds.astype(np.int32),
        parent_index=above.astype(np.int32),
        chunks=chunks,
        chunk_starts=firsts.astype(np.int32),
        history=_history(bounds[: len(lengths) + 1], above[: len(lengths)], history, tokens),
    )


def num_chunks(num_tokens: int, num_segments: int) -> int:
    """Chunks that are enough for any tree of so many rows and segments."""
    return num_tokens // CHUNK_ROWS + num_segments


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


def _history(bounds: np.ndarray, parents: np.ndarray, width: int, tokens: int) -> np.ndarray:
    """[tokens, width] int32; rows behind the last segment have no history."""
    count = int(bounds[-1])
    previous = np.arange(-1, count - 1)
    previous[bounds[:-1]] = np.where(parents < 0, -1, bounds[parents + 1] - 1)
    found = np.full((tokens, width), -1, dtype=np.int32)
    last = previous
    for column in range(width):
        found[:count, column] = last
        last = np.where(last < 0, -1, previous[np.maximum(last, 0)])
    return found
