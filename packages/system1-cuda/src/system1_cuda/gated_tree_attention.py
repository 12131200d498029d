"""Attention over a packed tree with its output gate on CUDA: online softmax along each path."""

from __future__ import annotations

import math
from functools import cache
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from system1_cuda.coverage import covers_heads
from system1_torch.ops import gated_tree_attention as reference
from system1_torch.packed_tree import CHUNK_ROWS, PackedTree

_WIDTHS = frozenset({64, 128, 256})
_DTYPES = frozenset({torch.float16, torch.bfloat16})
# What a grid's second side holds, four programs a chunk.
_MAX_CHUNKS = 65_535 // 4
# Rows a chunk on average, under which most chunks are the short ends of a tree.
_FEW_ROWS = 24
# Keys of one step of the kernel for read rows; a matrix product takes 16 rows at least.
_READ_KEYS, _READ_HEADS = 64, 16


class _Schedule(NamedTuple):
    """How a kernel over all rows runs: heads, rows and keys a program, warps, tiles in flight."""

    heads: int
    rows: int
    keys: int
    warps: int
    stages: int


def gated_tree_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    gate: Tensor,
    tree: PackedTree,
    rows: Tensor | None = None,
) -> Tensor:
    """As the reference, in one kernel, for 16-bit dtypes, on the tree's device tables.

    q, k, v and gate may be views with strides. Rows behind the tree's last are left unwritten.
    """
    if not _covers(q, k, v, gate, tree):
        return reference.gated_tree_attention(q, k, v, gate, tree, rows)
    count, heads, width = q.shape
    groups = heads // k.shape[1]
    out = q.new_empty(count, heads * width)
    scale = math.log2(math.e) / math.sqrt(width)
    strides = (*q.stride()[:2], *k.stride()[:2], *v.stride()[:2], *gate.stride()[:2])
    if rows is None:
        chunks = tree.chunks.shape[0]
        schedule = _schedule(width, groups, heads, count, chunks, q.device.index or 0)
        kernel = _attend_chunks if schedule.heads > 1 else _attend_parts
        grid = (heads // schedule.heads, chunks * (CHUNK_ROWS // schedule.rows))
        kernel[grid](
            q, k, v, gate, out, tree.chunks, tree.cu_seqlens, tree.parent_index, scale,
            *strides, heads, groups,
            WIDTH=width, ROWS=schedule.rows, HEADS=schedule.heads, KEYS=schedule.keys,
            STAGES=schedule.stages, num_warps=schedule.warps,
        )  # fmt: skip
        return out
    segments = tree.parent_index.shape[0]
    _attend_rows[(k.shape[1], count)](
        q, k, v, gate, out, rows, tree.cu_seqlens, tree.parent_index, scale,
        *strides, heads, groups, segments,
        WIDTH=width, HEADS=max(_READ_HEADS, triton.next_power_of_2(groups)), KEYS=_READ_KEYS,
        SEGMENTS=triton.next_power_of_2(segments), num_warps=4,
    )  # fmt: skip
    return out


def _covers(q: Tensor, k: Tensor, v: Tensor, gate: Tensor, tree: PackedTree) -> bool:
    return (
        all(map(covers_heads, (q, k, v, gate)))
        and q.dtype == k.dtype == v.dtype == gate.dtype
        and q.dtype in _DTYPES
        and q.shape == gate.shape
        and q.shape[2] == k.shape[2] in _WIDTHS
        and k.shape == v.shape
        and q.shape[1] % k.shape[1] == 0
        and tree.chunks.is_cuda
        and tree.chunks.shape[0] <= _MAX_CHUNKS
    )


@cache
def _shared_bytes(device: int) -> int:
    return int(torch.cuda.get_device_properties(device).shared_memory_per_block_optin)


@cache
def _multiprocessors(device: int) -> int:
    return torch.cuda.get_device_properties(device).multi_processor_count


def _schedule(
    width: int, groups: int, heads: int, rows: int, chunks: int, device: int
) -> _Schedule:
    """For a packed stream of `rows` in up to `chunks` runs of 64.

    Few rows, and trees of many short segments, are cut into programs of 16 rows. Two heads a
    program read their keys once, where that leaves no multiprocessor idle. On other chips than
    Hopper's, shared memory holds no more than 32 keys.
    """
    tiles, multiprocessors = chunks * heads, _multiprocessors(device)
    if _shared_bytes(device) < 200 << 10:
        return _Schedule(1, CHUNK_ROWS, 32, 4, 1)
    if 5 * tiles <= 3 * multiprocessors or rows < _FEW_ROWS * chunks:
        return _Schedule(1, 16, 64, 4, 2)
    if groups % 2 == 0 and tiles > 2 * multiprocessors:
        return _Schedule(2, CHUNK_ROWS, 64, 8, 2)
    return _Schedule(1, CHUNK_ROWS, 32, 4, 3)


@triton.jit
def _see(
    query, weighted, total, top, k, v, low, high, row,
    k_stride, v_stride, head_k, head_v, scale,
    WIDTH: tl.constexpr, KEYS: tl.constexpr, STAGES: tl.constexpr, IS_MASKED: tl.constexpr,
):  # fmt: skip
    """One more span of keys, `low` to `high`, into the running softmax of `query`'s rows.

    Masked, a row sees no key behind itself or behind `high`; else every tile is whole and seen.
    """
    dim = tl.arange(0, WIDTH)
    for begin in tl.range(low, high, KEYS, num_stages=STAGES):
        place = begin + tl.arange(0, KEYS)
        at = place.to(tl.int64)[:, None]
        if IS_MASKED:
            inside = (place < high)[:, None]
            key = tl.load(k + at * k_stride + head_k + dim[None, :], mask=inside, other=0.0)
            value = tl.load(v + at * v_stride + head_v + dim[None, :], mask=inside, other=0.0)
        else:
            key = tl.load(k + at * k_stride + head_k + dim[None, :])
            value = tl.load(v + at * v_stride + head_v + dim[None, :])
        score = tl.dot(query, tl.trans(key)) * scale
        if IS_MASKED:
            seen = (place[None, :] <= row[:, None]) & (place < high)[None, :]
            score = tl.where(seen, score, float("-inf"))
        highest = tl.maximum(top, tl.max(score, 1))
        # A row that has seen nothing yet stays at zero.
        shift = tl.where(highest == float("-inf"), 0.0, highest)
        chance = tl.exp2(score - shift[:, None])
        fade = tl.exp2(top - shift)
        total = total * fade + tl.sum(chance, 1)
        weighted = tl.dot(chance.to(value.dtype), value, weighted * fade[:, None])
        top = highest
    return weighted, total, top


@triton.jit
def _gated(weighted, total, gate, dtype: tl.constexpr):
    """The attention result, the sigmoid and their product, each rounded."""
    attended = (weighted / total[:, None]).to(dtype).to(tl.float32)
    opened = (1.0 / (1.0 + tl.exp(-gate.to(tl.float32)))).to(dtype).to(tl.float32)
    return (attended * opened).to(dtype)


@triton.jit
def _attend_chunks(
    q, k, v, gate, out, chunks, cu_seqlens, parent_index, scale,
    q_stride, q_head, k_stride, k_head, v_stride, v_head, gate_stride, gate_head, heads, groups,
    WIDTH: tl.constexpr, ROWS: tl.constexpr, HEADS: tl.constexpr, KEYS: tl.constexpr,
    STAGES: tl.constexpr,
):  # fmt: skip
    """Up to 64 rows of one segment, HEADS heads of one key head."""
    # The longest paths come last in a segment: they begin first.
    chunk = tl.num_programs(1) - 1 - tl.program_id(1)
    segment = tl.load(chunks + 2 * chunk)
    if segment < 0:
        return
    first = tl.load(chunks + 2 * chunk + 1)
    begin, end = tl.load(cu_seqlens + segment), tl.load(cu_seqlens + segment + 1)
    place, dim = tl.arange(0, ROWS * HEADS), tl.arange(0, WIDTH)
    head = tl.program_id(0) * HEADS + place // ROWS
    head_of_keys = (tl.program_id(0) * HEADS) // groups
    row = first + place % ROWS
    inside = (row < end)[:, None]
    at = row.to(tl.int64)
    q_at = at[:, None] * q_stride + head[:, None] * q_head + dim[None, :]
    query = tl.load(q + q_at, mask=inside, other=0.0)
    weighted = tl.zeros((ROWS * HEADS, WIDTH), tl.float32)
    total = tl.zeros((ROWS * HEADS,), tl.float32)
    top = tl.full((ROWS * HEADS,), float("-inf"), tl.float32)
    head_k, head_v = head_of_keys * k_head, head_of_keys * v_head

    whole = begin + (first - begin) // KEYS * KEYS
    weighted, total, top = _see(
        query, weighted, total, top, k, v, begin, whole, row,
        k_stride, v_stride, head_k, head_v, scale, WIDTH, KEYS, STAGES, False,
    )  # fmt: skip
    weighted, total, top = _see(
        query, weighted, total, top, k, v, whole, tl.minimum(first + ROWS, end), row,
        k_stride, v_stride, head_k, head_v, scale, WIDTH, KEYS, 1, True,
    )  # fmt: skip
    parent = tl.load(parent_index + segment)
    while parent >= 0:
        low, high = tl.load(cu_seqlens + parent), tl.load(cu_seqlens + parent + 1)
        whole = low + (high - low) // KEYS * KEYS
        weighted, total, top = _see(
            query, weighted, total, top, k, v, low, whole, row,
            k_stride, v_stride, head_k, head_v, scale, WIDTH, KEYS, STAGES, False,
        )  # fmt: skip
        weighted, total, top = _see(
            query, weighted, total, top, k, v, whole, high, row,
            k_stride, v_stride, head_k, head_v, scale, WIDTH, KEYS, 1, True,
        )  # fmt: skip
        parent = tl.load(parent_index + parent)

    gate_at = at[:, None] * gate_stride + head[:, None] * gate_head + dim[None, :]
    opened = tl.load(gate + gate_at, mask=inside, other=0.0)
    out_at = (at[:, None] * heads + head[:, None]) * WIDTH + dim[None, :]
    tl.store(out + out_at, _gated(weighted, total, opened, out.dtype.element_ty), mask=inside)


@triton.jit
def _attend_parts(
    q, k, v, gate, out, chunks, cu_seqlens, parent_index, scale,
    q_stride, q_head, k_stride, k_head, v_stride, v_head, gate_stride, gate_head, heads, groups,
    WIDTH: tl.constexpr, ROWS: tl.constexpr, HEADS: tl.constexpr, KEYS: tl.constexpr,
    STAGES: tl.constexpr,
):  # fmt: skip
    """ROWS of a chunk, one head: a third of the code of `_attend_chunks`.

    In a forward, code comes from memory each time, for weights fill the caches in between.
    """
    tl.static_assert(HEADS == 1)
    parts: tl.constexpr = 64 // ROWS
    # The longest paths come last in a segment: they begin first.
    number = tl.num_programs(1) - 1 - tl.program_id(1)
    chunk = number // parts
    segment = tl.load(chunks + 2 * chunk)
    if segment < 0:
        return
    end = tl.load(cu_seqlens + segment + 1)
    first = tl.load(chunks + 2 * chunk + 1) + number % parts * ROWS
    if first >= end:
        return
    head, dim = tl.program_id(0), tl.arange(0, WIDTH)
    row = first + tl.arange(0, ROWS)
    inside = (row < end)[:, None]
    at = row.to(tl.int64)
    q_at = at[:, None] * q_stride + head * q_head + dim[None, :]
    query = tl.load(q + q_at, mask=inside, other=0.0)
    weighted = tl.zeros((ROWS, WIDTH), tl.float32)
    total = tl.zeros((ROWS,), tl.float32)
    top = tl.full((ROWS,), float("-inf"), tl.float32)
    head_k, head_v = head // groups * k_head, head // groups * v_head
    high = tl.minimum(first + ROWS, end)
    while segment >= 0:
        # Rows of a segment follow those of all its ancestors.
        low = tl.load(cu_seqlens + segment)
        weighted, total, top = _see(
            query, weighted, total, top, k, v, low, high, row,
            k_stride, v_stride, head_k, head_v, scale, WIDTH, KEYS, STAGES, True,
        )  # fmt: skip
        segment = tl.load(parent_index + segment)
        high = tl.load(cu_seqlens + tl.maximum(segment, 0) + 1)
    gate_at = at[:, None] * gate_stride + head * gate_head + dim[None, :]
    opened = tl.load(gate + gate_at, mask=inside, other=0.0)
    out_at = (at[:, None] * heads + head) * WIDTH + dim[None, :]
    tl.store(out + out_at, _gated(weighted, total, opened, out.dtype.element_ty), mask=inside)


@triton.jit
def _attend_rows(
    q, k, v, gate, out, rows, cu_seqlens, parent_index, scale,
    q_stride, q_head, k_stride, k_head, v_stride, v_head, gate_stride, gate_head, heads, groups,
    segments, WIDTH: tl.constexpr, HEADS: tl.constexpr, KEYS: tl.constexpr,
    SEGMENTS: tl.constexpr,
):  # fmt: skip
    """One row that is read, all query heads of one key head."""
    head_of_keys, number = tl.program_id(0), tl.program_id(1)
    position = tl.load(rows + number).to(tl.int32)
    other, dim = tl.arange(0, SEGMENTS), tl.arange(0, WIDTH)
    ends = tl.load(cu_seqlens + 1 + other, mask=other < segments, other=2147483647)
    segment = tl.sum((ends <= position).to(tl.int32), 0)
    place = tl.arange(0, HEADS)
    inside = (place < groups)[:, None]
    head = head_of_keys * groups + place
    row = tl.full((HEADS,), 0, tl.int32) + position
    base = number.to(tl.int64)
    q_at = base * q_stride + head[:, None] * q_head + dim[None, :]
    query = tl.load(q + q_at, mask=inside, other=0.0)
    weighted = tl.zeros((HEADS, WIDTH), tl.float32)
    total = tl.zeros((HEADS,), tl.float32)
    top = tl.full((HEADS,), float("-inf"), tl.float32)
    head_k, head_v = head_of_keys * k_head, head_of_keys * v_head
    high = position + 1
    while segment >= 0:
        low = tl.load(cu_seqlens + segment)
        weighted, total, top = _see(
            query, weighted, total, top, k, v, low, high, row,
            k_stride, v_stride, head_k, head_v, scale, WIDTH, KEYS, 2, True,
        )  # fmt: skip
        segment = tl.load(parent_index + segment)
        high = tl.load(cu_seqlens + tl.maximum(segment, 0) + 1)
    gate_at = base * gate_stride + head[:, None] * gate_head + dim[None, :]
    opened = tl.load(gate + gate_at, mask=inside, other=0.0)
    out_at = (base * heads + head[:, None]) * WIDTH + dim[None, :]
    tl.store(out + out_at, _gated(weighted, total, opened, out.dtype.element_ty), mask=inside)
