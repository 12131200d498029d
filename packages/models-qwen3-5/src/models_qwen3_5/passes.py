"""The integers of one pass: packed on the host in one array, taken apart on the device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from models_qwen3_5.planner import Plan, Segment
from models_qwen3_5.rope import make_positions
from models_qwen3_5.sequence import SequencePrompt
from system1_torch.packed_tree import CHUNK_ROWS, PackedTree, make_tables, num_chunks, tree_of


class Shape(NamedTuple):
    """How many rows, segments, chunks and read rows a pass has room for."""

    tokens: int
    segments: int
    chunks: int
    reads: int

    def sizes(self, history: int) -> list[int]:
        """Of token ids, positions, the tree's five tables, and read rows."""
        tree = (self.segments + 1, self.segments, 2 * self.chunks, self.segments + 1)
        return [self.tokens, 3 * self.tokens, *tree, history * self.tokens, self.reads]


@dataclass(frozen=True, slots=True)
class PassInputs:
    """What the network takes, on the device: token_ids [T], positions [3, T], the tree, and the
    rows [R] int64 that are read."""

    token_ids: Tensor
    positions: Tensor
    tree: PackedTree
    rows: Tensor


def exact_shape(plan: Plan, reads: int) -> Shape:
    """Room for this pass and nothing else."""
    lengths = np.diff(plan.starts)
    return Shape(plan.num_tokens, len(plan.segments), int((-(-lengths // 64)).sum()), reads)


def padded_shape(tokens: int, segments: int, reads: int) -> Shape:
    """Room for any pass of up to so many rows, segments and reads."""
    return Shape(tokens, segments, num_chunks(tokens, segments), reads)


def make_table(
    plan: Plan,
    prompts: Sequence[SequencePrompt],
    wanted: Sequence[int],
    shape: Shape,
    history: int,
    *,
    pinned: bool = False,
) -> Tensor:
    """Everything of `PassInputs` end to end, int32 on the host, where asked in pinned memory.

    Padded rows have token 0 at position 0 and belong to no segment; padded reads are of row 0.
    """
    sizes = shape.sizes(history)
    table = torch.empty(sum(sizes), dtype=torch.int32, pin_memory=pinned)
    whole = table.numpy()
    parts = [whole[stop - size : stop] for size, stop in zip(sizes, accumulate(sizes), strict=True)]
    token_ids, positions, *tree, read = parts
    segments, starts, count = plan.segments, plan.starts, plan.num_tokens
    keys = [prompts[s.owner].key[s.start : s.stop] for s in segments]
    np.concatenate(keys, out=token_ids[:count], casting="unsafe")
    token_ids[count:] = 0
    axes = positions.reshape(3, -1)
    axes[:, count:] = 0
    axes[:, :count] = np.arange(count)
    if len(segments) == 1:
        _fill_lone(tree, count, history)
    else:
        jumps = [segment.start - start for segment, start in zip(segments, starts, strict=False)]
        axes[:, :count] += np.repeat(np.array(jumps, dtype=np.int32), np.diff(starts))
        _fill_tree(tree, plan, shape, history)
    for segment, start in zip(segments, starts, strict=False):
        owner = prompts[segment.owner]
        if owner.images:
            rows = slice(start, start + segment.stop - segment.start)
            token_ids[rows] = owner.token_ids[segment.start : segment.stop]
            axes[:, rows] = _positions(owner, segment)
    read[: len(wanted)] = wanted
    read[len(wanted) :] = 0
    return table


def _fill_tree(tree: Sequence[np.ndarray], plan: Plan, shape: Shape, history: int) -> None:
    is_exact = shape == exact_shape(plan, shape.reads)
    tables = make_tables(
        [s.stop - s.start for s in plan.segments],
        [s.parent for s in plan.segments],
        history=history,
        num_tokens=None if is_exact else shape.tokens,
        num_segments=shape.segments,
    )
    for part, table in zip(tree, tables, strict=True):
        assert part.size == table.size
        part[:] = table.ravel()


def _fill_lone(tree: Sequence[np.ndarray], count: int, width: int) -> None:
    """The same tables where one segment holds all tokens, in a fifth of the time."""
    cu_seqlens, parents, chunks, chunk_starts, before = tree
    runs = -(-count // CHUNK_ROWS)
    cu_seqlens[0], cu_seqlens[1:] = 0, count
    parents[:] = -1
    chunks[: 2 * runs : 2] = 0
    chunks[1 : 2 * runs : 2] = np.arange(0, count, CHUNK_ROWS)
    chunks[2 * runs :] = -1
    chunk_starts[0], chunk_starts[1:] = 0, runs
    before[width * count :] = -1
    rows = np.arange(count, dtype=np.int32)[:, None] - np.arange(1, width + 1, dtype=np.int32)
    np.maximum(rows, -1, out=before[: width * count].reshape(count, width))


def _positions(prompt: SequencePrompt, segment: Segment) -> np.ndarray:
    """Positions of a segment's tokens; behind the last image all three axes count on."""
    images = prompt.images
    if segment.start < images[-1].stop:
        return make_positions(prompt.num_tokens, images)[:, segment.start : segment.stop]
    shift = sum(max(span.image.merged_grid) - span.image.num_tokens for span in images)
    return np.arange(segment.start + shift, segment.stop + shift)


def take_apart(table: Tensor, shape: Shape, history: int, plan: Plan | None = None) -> PassInputs:
    """`table`, on the device, as inputs; without a plan the tree is known to the device only."""
    parts = table.split(shape.sizes(history))
    token_ids, positions, cu_seqlens, parents, chunks, chunk_starts, before, rows = parts
    segments = () if plan is None else plan.segments
    tree = tree_of(
        [s.stop - s.start for s in segments],
        [s.parent for s in segments],
        cu_seqlens,
        parents,
        chunks.view(-1, 2),
        chunk_starts,
        before.view(-1, history),
    )
    return PassInputs(token_ids, positions.view(3, -1), tree, rows.long())


def ladder_of(*runs: tuple[int, int]) -> list[int]:
    """Multiples of each step up to each limit, from pairs (step, limit)."""
    begins = [0, *(limit for _, limit in runs)]
    rungs = (
        range(b + step, limit + 1, step) for b, (step, limit) in zip(begins, runs, strict=False)
    )
    return [rung for run in rungs for rung in run]
