"""The integers of one pass: packed on the host in one array, taken apart on the device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from models_qwen3_5.planner import Plan, Segment
from models_qwen3_5.rope import make_positions
from models_qwen3_5.sequence import SequencePrompt
from system1_torch.packed_tree import PackedTree, make_tables, num_chunks, tree_of


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
    plan: Plan, prompts: Sequence[SequencePrompt], wanted: Sequence[int], shape: Shape, history: int
) -> Tensor:
    """Everything of `PassInputs` end to end, int32 on the host.

    Padded rows have token 0 at position 0 and belong to no segment; padded reads are of row 0.
    """
    segments = plan.segments
    is_exact = shape == exact_shape(plan, shape.reads)
    tree = make_tables(
        [s.stop - s.start for s in segments],
        [s.parent for s in segments],
        history=history,
        num_tokens=None if is_exact else shape.tokens,
        num_segments=shape.segments,
    )
    token_ids = np.zeros(shape.tokens, dtype=np.int32)
    positions = np.zeros((3, shape.tokens), dtype=np.int32)
    for segment, start in zip(segments, plan.starts, strict=False):
        rows = slice(start, start + segment.stop - segment.start)
        # Only what the segment holds: most sequences of a wide tree own a short tail.
        token_ids[rows] = prompts[segment.owner].token_ids[segment.start : segment.stop]
        positions[:, rows] = _positions(prompts[segment.owner], segment)
    read = np.zeros(shape.reads, dtype=np.int32)
    read[: len(wanted)] = wanted
    parts = [token_ids, positions, *tree, read]
    assert [part.size for part in parts] == shape.sizes(history)
    return torch.from_numpy(np.concatenate([part.ravel() for part in parts]))


def _positions(prompt: SequencePrompt, segment: Segment) -> np.ndarray:
    """Positions of a segment's tokens; behind the last image all three axes count on."""
    images = prompt.images
    if images and segment.start < images[-1].stop:
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
