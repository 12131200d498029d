"""Gated delta rule over a packed tree on CUDA: chunks side by side, then a pass along each path."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor

from system1_cuda.coverage import is_aligned
from system1_torch.ops import tree_delta_rule as reference
from system1_torch.packed_tree import PackedTree

_WIDTH = 128
_DTYPES = frozenset({torch.float16, torch.bfloat16})
# The grid's second dimension counts value heads times segments.
_MAX_GRID = 65_535
# Shared memory of the second kernel for one chunk and 64 value columns; the first takes less.
_SHARED_BYTES = 72 << 10
# The one architecture with warpgroup products; Blackwell has others.
_GROUPS_CAPABILITY = (9, 0)


class _Schedule(NamedTuple):
    """How the second kernel runs: blocks that share a head's columns, chunks in flight, and whether
    four warps multiply together (Hopper) or each by itself."""

    slices: int
    stages: int
    groups: bool


def tree_delta_rule(
    q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, tree: PackedTree
) -> Tensor:
    """As the reference, for 16-bit values with heads 128 wide, on the tree's device tables.

    One kernel solves every chunk of 64 rows by itself, a second carries the states from chunk to
    chunk and from parent to child. Rows behind the tree's last are left unwritten.
    """
    if not _covers(q, k, v, g, beta, tree):
        return reference.tree_delta_rule(q, k, v, g, beta, tree)
    segments, chunks = tree.parent_index.shape[0], tree.chunks.shape[0]
    schedule = _schedule(v.shape[1] * segments, chunks, segments, v.device.index or 0)
    return torch.ops.system1.tree_delta_rule.default(
        q.to(v.dtype),
        k.to(v.dtype),
        v,
        g,
        beta,
        tree.cu_seqlens,
        tree.parent_index,
        tree.chunks,
        tree.chunk_starts,
        *schedule,
    )


def _covers(q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, tree: PackedTree) -> bool:
    return (
        v.is_cuda
        and v.dtype in _DTYPES
        and beta.dtype == v.dtype
        and q.dtype == k.dtype
        and q.dtype in (torch.float32, v.dtype)
        and q.shape == k.shape
        and q.shape[2] == v.shape[2] == _WIDTH
        and v.shape[1] % q.shape[1] == 0
        and v.shape[1] * tree.parent_index.shape[0] <= _MAX_GRID
        and q.stride()[1:] == k.stride()[1:] == v.stride()[1:] == (_WIDTH, 1)
        and all(x.stride(0) % 8 == 0 for x in (q, k, v))
        and is_aligned(q, k, v)
        and g.dtype == torch.float32
        and g.stride(1) == beta.stride(1) == 1
        and tree.chunks.is_cuda
        and _shared_bytes(v.device.index or 0) >= _SHARED_BYTES
    )


@cache
def _shared_bytes(device: int) -> int:
    return int(torch.cuda.get_device_properties(device).shared_memory_per_block_optin)


@cache
def _multiprocessors(device: int) -> int:
    return int(torch.cuda.get_device_properties(device).multi_processor_count)


@cache
def _capability(device: int) -> tuple[int, int]:
    return torch.cuda.get_device_capability(device)


def _schedule(paths: int, chunks: int, segments: int, device: int) -> _Schedule:
    """A schedule for so many segments and value heads together, and chunks as the table has room.

    Long segments and a lone one keep three chunks in flight (in groups) or two; blocks of short
    segments share processors and take one chunk at a time. Without groups, narrow blocks shorten
    every chunk where each finds a processor for itself.
    """
    if _capability(device) == _GROUPS_CAPABILITY:
        return _Schedule(2, 3 if segments == 1 or chunks >= 4 * segments else 1, True)
    slices = 4 if 4 * paths <= _multiprocessors(device) else 2
    has_room = _shared_bytes(device) >= 2 * _SHARED_BYTES
    return _Schedule(slices, 2 if has_room and chunks > 2 * segments else 1, False)
