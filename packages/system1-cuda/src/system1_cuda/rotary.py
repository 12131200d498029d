"""Rotary position embedding on CUDA."""

from __future__ import annotations

import torch
from torch import Tensor

from system1_cuda.coverage import MAX_COUNT, VECTOR, covers_heads, is_aligned
from system1_torch.ops import rotary as reference


def rotary(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """As the reference, in one kernel; x may be a view with strides, the result is contiguous."""
    if not _covers(x, cos, sin):
        return reference.rotary(x, cos, sin)
    return torch.ops.system1.rotary.default(x, cos, sin)


def _covers(x: Tensor, cos: Tensor, sin: Tensor) -> bool:
    return (
        covers_heads(x)
        and x.shape[2] % VECTOR == 0
        and x.numel() <= MAX_COUNT
        and all(
            table.dtype == torch.float32
            and table.is_contiguous()
            and table.shape == (x.shape[0], cos.shape[-1])
            for table in (cos, sin)
        )
        and cos.shape[-1] % VECTOR == 0
        and 0 < 2 * cos.shape[-1] <= x.shape[2]
        and is_aligned(cos, sin)
    )
