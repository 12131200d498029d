"""Attention over a packed tree with its output gate: a segment sees its ancestors and its past."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from system1_torch.packed_tree import PackedTree

# Bounds the mask of one product to BLOCK times the keys in sight.
BLOCK = 512


def gated_tree_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    gate: Tensor,
    tree: PackedTree,
    rows: Tensor | None = None,
) -> Tensor:
    """softmax(q k^T / sqrt(D)) v * sigmoid(gate), causal along each path of the tree.

    Shapes: q, gate [R, H, D]; k, v [T, HK, D]; query head h reads key head h // (H / HK). `rows`
    [R] int64, rising, names the row of each query; None means R = T, every row. Returns
    [R, H * D] in q's dtype; the attention result, the sigmoid and their product each round.
    """
    tree.require_host()
    positions = torch.arange(tree.num_tokens) if rows is None else rows.cpu()
    starts = torch.tensor(tree.starts)
    # The queries of segment n are bounds[n] to bounds[n + 1].
    bounds = torch.searchsorted(positions, starts).tolist()
    own = starts[torch.searchsorted(starts, positions, right=True) - 1]
    out = torch.empty_like(q, memory_format=torch.contiguous_format)
    for first, last in _groups(tree):
        asked = slice(bounds[first], bounds[last])
        if asked.start < asked.stop:
            spans = [tree.rows(place) for place in tree.ancestors(first)]
            shared = sum(map(len, spans))
            spans.append(range(tree.starts[first], tree.starts[last]))
            shift = shared - tree.starts[first]
            sight = _Sight(shared, own[asked] + shift, positions[asked] + shift)
            _attend(q[asked], _gather(k, spans), _gather(v, spans), sight, out[asked])
    return (out * torch.sigmoid(gate)).flatten(1)


class _Sight(NamedTuple):
    """What queries see of gathered keys: the first `shared`, and from `low` up to `high` [R]."""

    shared: int
    low: Tensor
    high: Tensor


def _groups(tree: PackedTree) -> Iterator[tuple[int, int]]:
    """Neighbours that continue one parent, up to BLOCK rows together: its keys are read once."""
    first = 0
    for segment in range(1, tree.num_segments):
        is_sibling = tree.parents[segment] == tree.parents[first]
        if not is_sibling or tree.starts[segment + 1] - tree.starts[first] > BLOCK:
            yield first, segment
            first = segment
    yield first, tree.num_segments


def _gather(x: Tensor, spans: list[range]) -> Tensor:
    parts = [x[span.start : span.stop] for span in spans]
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def _attend(q: Tensor, k: Tensor, v: Tensor, sight: _Sight, out: Tensor) -> None:
    """Attention of rising rows, block by block, each over the keys up to its last row's."""
    is_whole = q.shape[0] == k.shape[0] and not sight.low.any()
    if is_whole:
        out.copy_(_sdpa(q, k, v, None))
        return
    for begin in range(0, q.shape[0], BLOCK):
        block = slice(begin, begin + BLOCK)
        low, high = sight.low[block, None], sight.high[block, None]
        width = int(high[-1]) + 1
        keys = torch.arange(width)
        mask = (keys < sight.shared) | ((keys >= low) & (keys <= high))
        out[block] = _sdpa(q[block], k[:width], v[:width], mask.to(q.device))


def _sdpa(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
    repeats = q.shape[1] // k.shape[1]
    q, k, v = (x.transpose(0, 1)[None] for x in (q, k, v))
    k, v = k.repeat_interleave(repeats, dim=1), v.repeat_interleave(repeats, dim=1)
    attended = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=mask is None)
    return attended[0].transpose(0, 1)
