"""Causal attention over packed segments."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

from models_clm.segments import Block


def segment_attention(q: Tensor, k: Tensor, v: Tensor, blocks: Sequence[Block]) -> Tensor:
    """Softmax attention of each block over its prefix and itself.

    Shapes: q [T, H, D]; k, v [T, HK, D]; query head h reads key head h // (H / HK). Scale
    D ** -0.5; returns [T, H, D] in q's dtype.
    """
    out = torch.empty_like(q, memory_format=torch.contiguous_format)
    for block in blocks:
        rows = slice(block.begin, block.end)
        prefix = slice(block.prefix.start, block.prefix.stop)
        keys, values = k[rows], v[rows]
        if block.prefix:
            keys, values = torch.cat([k[prefix], keys]), torch.cat([v[prefix], values])
        queries, keys, values = (x.transpose(0, 1)[None] for x in (q[rows], keys, values))
        attended = functional.scaled_dot_product_attention(
            queries,
            keys,
            values,
            attn_mask=block.mask,
            is_causal=block.mask is None,
            enable_gqa=True,
        )
        out[rows] = attended[0].transpose(0, 1)
    return out
