"""Bidirectional attention over packed sequences on CUDA, full or within a window."""

from __future__ import annotations

import torch
from torch import Tensor

from system1_cuda.coverage import MAX_COUNT, covers_heads
from system1_torch.ops import local_attention as reference

_HEAD_WIDTH = 64
# Sequences and heads are the grid's last two dimensions.
_MAX_GRID = 65_535
_SEES_ALL = -1
# From so many tokens on torch's own attention is faster for a lone sequence that sees all of
# itself: cuDNN has Hopper's warpgroup products, and float32 its larger tiles. Measured on an H200
# (benchmarks/results/h200/kernels.json).
_LONG = {torch.float32: 384, torch.float16: 768, torch.bfloat16: 768}


def local_attention(
    q: Tensor, k: Tensor, v: Tensor, cu_seqlens: Tensor, max_seqlen: int, window: int | None
) -> Tensor:
    """As the reference, all sequences in one kernel; q, k, v may be views with strides.

    A long lone sequence goes to the reference, except inside a CUDA graph: the reference reads the
    bounds on the host, and without them the rows may be longer than the sequence.
    """
    if not _covers(q, k, v, cu_seqlens) or (window is not None and window < 0):
        return reference.local_attention(q, k, v, cu_seqlens, max_seqlen, window)
    if window is None or window >= max_seqlen - 1:
        window = _SEES_ALL
    is_lone = cu_seqlens.shape[0] == 2 and window == _SEES_ALL
    if is_lone and max_seqlen >= _LONG[q.dtype] and not torch.cuda.is_current_stream_capturing():
        return reference.local_attention(q, k, v, cu_seqlens, max_seqlen, None)
    return torch.ops.system1.local_attention.default(q, k, v, cu_seqlens, max_seqlen, window)


def _covers(q: Tensor, k: Tensor, v: Tensor, cu_seqlens: Tensor) -> bool:
    return (
        q.shape == k.shape == v.shape
        and q.dtype == k.dtype == v.dtype
        and all(map(covers_heads, (q, k, v)))
        and q.shape[2] == _HEAD_WIDTH
        and q.shape[1] <= _MAX_GRID
        and q.shape[0] <= MAX_COUNT
        and 0 < cu_seqlens.shape[0] <= _MAX_GRID
        and cu_seqlens.dtype == torch.int32
        and cu_seqlens.is_cuda
        and cu_seqlens.is_contiguous()
    )
