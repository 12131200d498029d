"""Gated delta rule over a packed tree, in its chunked form."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor

from system1_torch.packed_tree import PackedTree

# Chunks of 64 tokens: cuts at multiples of 64 then repeat the arithmetic of an uncut pass.
CHUNK = 64


def tree_delta_rule(
    q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, tree: PackedTree
) -> Tensor:
    """S = exp(g) S; d = beta (v - k^T S); S += k d^T; o = q^T S, token by token.

    Shapes: q, k [T, H, K], normalised already; v [T, HV, V]; g, beta [T, HV]. g is log decay.
    Value head j reads key head j // (HV / H). A segment starts from its parent's last state, read
    by index, a root from zero; states are [HV, K, V] fp32. Accumulates in fp32; returns
    [T, HV, V] in v's dtype. Raises ValueError if HV is not a multiple of H.
    Source: Gated Delta Networks (ICLR 2025), chunked form.
    """
    tree.require_host()
    heads, heads_v = q.shape[1], v.shape[1]
    if heads_v % heads:
        raise ValueError(f"{heads_v} value heads are no multiple of {heads} key heads")
    out = torch.empty_like(v, memory_format=torch.contiguous_format)
    states = q.new_zeros(1, heads_v, q.shape[2], v.shape[2], dtype=torch.float32)
    first = 0
    for begin, end in pairwise(tree.levels):
        rows = slice(tree.starts[begin], tree.starts[end])
        lengths = [len(tree.rows(segment)) for segment in range(begin, end)]
        if begin == 0:
            start = states.expand(end, -1, -1, -1)
        else:
            start = states[tree.parent_index[begin:end].long() - first]
        level = (q[rows], k[rows], v[rows], g[rows], beta[rows])
        out[rows], states = _run_level(*level, lengths, start)
        first = begin
    return out


def _run_level(
    q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, lengths: list[int], start: Tensor
) -> tuple[Tensor, Tensor]:
    """Independent segments side by side: their outputs and their last states."""
    size = min(CHUNK, 1 << (max(lengths) - 1).bit_length())
    counts = [-(-length // size) for length in lengths]
    places, offsets = _chunk_places(lengths, counts, size, q.device)
    total = sum(counts)

    def chunked(x: Tensor) -> Tensor:
        """[T, H, ...] to [chunks, H, size, ...] fp32, zeros behind each segment's end."""
        padded = x.new_zeros(total * size, *x.shape[1:], dtype=torch.float32)
        padded[places] = x.float()
        return padded.view(total, size, *x.shape[1:]).transpose(1, 2)

    parts = _within_chunks(chunked(q), chunked(k), chunked(v), chunked(g), chunked(beta))
    outs, states = _across_chunks(*parts, counts, offsets, start)
    return outs.transpose(1, 2).flatten(0, 1)[places].to(v.dtype), states


def _chunk_places(
    lengths: list[int], counts: list[int], size: int, device: torch.device
) -> tuple[Tensor, list[int]]:
    """Where each token lies in the padded chunks, and the first chunk of each segment."""
    offsets = [0]
    for count in counts:
        offsets.append(offsets[-1] + count)
    spans = [
        torch.arange(offset * size, offset * size + length)
        for offset, length in zip(offsets, lengths, strict=False)
    ]
    return torch.cat(spans).to(device), offsets[:-1]


def _within_chunks(
    q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """All that needs no state, for every chunk at once.

    Returns U [M, HV, C, V] and W [M, HV, C, K] (the new values are U - W S), the decayed queries
    and keys [M, HV, C, K], the masked scores [M, HV, C, C], and each chunk's whole log decay.
    """
    repeats = v.shape[1] // q.shape[1]
    total = g.cumsum(-1)
    size = g.shape[-1]
    seen = torch.ones(size, size, dtype=torch.bool, device=g.device).tril()
    # Masked before the exponential: above the diagonal it would overflow.
    gaps = (total[..., :, None] - total[..., None, :]).masked_fill(~seen, float("-inf"))
    decay = gaps.exp()
    scores = (q @ k.mT).repeat_interleave(repeats, dim=1) * decay
    overlap = (k @ k.mT).repeat_interleave(repeats, dim=1) * decay * beta[..., None]
    q = q.repeat_interleave(repeats, dim=1)
    k = k.repeat_interleave(repeats, dim=1)
    grown = total.exp()[..., None]
    right = torch.cat([v, k * grown], dim=-1) * beta[..., None]
    # Only the part below the diagonal is read; the diagonal counts as one.
    solved = torch.linalg.solve_triangular(overlap, right, upper=False, unitriangular=True)
    new_values, weights = solved.split([v.shape[-1], k.shape[-1]], dim=-1)
    last = total[..., -1:]
    return new_values, weights, q * grown, k * (last - total).exp()[..., None], scores, last


def _across_chunks(
    values: Tensor,
    weights: Tensor,
    q: Tensor,
    k: Tensor,
    scores: Tensor,
    last: Tensor,
    counts: list[int],
    offsets: list[int],
    start: Tensor,
) -> tuple[Tensor, Tensor]:
    """The recurrence from chunk to chunk, all segments that still have one in step."""
    states = start.clone()
    outs = torch.empty_like(values)
    for step in range(max(counts)):
        alive = [segment for segment, count in enumerate(counts) if count > step]
        here = torch.tensor([offsets[segment] + step for segment in alive], device=q.device)
        index = torch.tensor(alive, device=q.device)
        state = states[index]
        fresh = values[here] - weights[here] @ state
        outs[here] = q[here] @ state + scores[here] @ fresh
        states[index] = state * last[here].exp()[..., None] + k[here].mT @ fresh
    return outs, states
