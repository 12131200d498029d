"""RMSNorm of each head and rotary positions on CUDA."""

from __future__ import annotations

import torch
from torch import Tensor

from system1_cuda.coverage import MAX_COUNT, VECTOR, covers_heads, is_aligned
from system1_torch.ops import norm_rope as reference

# Eight values a lane: 8, 16 or 32 lanes hold a head.
_WIDTHS = frozenset({64, 128, 256})


def norm_rope(x: Tensor, weight: Tensor, cos: Tensor, sin: Tensor, eps: float) -> Tensor:
    """As the reference, in one kernel; x may be a view with strides, the result is contiguous."""
    if not _covers(x, weight, cos, sin):
        return reference.norm_rope(x, weight, cos, sin, eps)
    return torch.ops.system1.norm_rope.default(x, weight, cos, sin, eps)


def _covers(x: Tensor, weight: Tensor, cos: Tensor, sin: Tensor) -> bool:
    return (
        covers_heads(x)
        and x.shape[2] in _WIDTHS
        and x.shape[0] * x.shape[1] <= MAX_COUNT
        and weight.dtype in (x.dtype, torch.float32)
        and weight.is_contiguous()
        and cos.shape == sin.shape == (x.shape[0], cos.shape[-1])
        and cos.dtype == sin.dtype == x.dtype
        and cos.is_contiguous()
        and sin.is_contiguous()
        and cos.shape[1] % (2 * VECTOR) == 0
        and 0 < cos.shape[1] <= x.shape[2]
        and is_aligned(weight, cos, sin)
    )
