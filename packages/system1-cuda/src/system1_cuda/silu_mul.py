"""The gate of a SwiGLU MLP on CUDA."""

from __future__ import annotations

import torch
from torch import Tensor

from system1_cuda.coverage import DTYPES, MAX_COUNT, VECTOR, is_aligned
from system1_torch.ops import silu_mul as reference


def silu_mul(gate_up: Tensor) -> Tensor:
    """As the reference, in one kernel that reads and writes each value once."""
    if not covers_halves(gate_up):
        return reference.silu_mul(gate_up)
    return torch.ops.system1.silu_mul.default(gate_up)


def covers_halves(x: Tensor) -> bool:
    """Whether a gated product takes x [T, 2 * I]."""
    return (
        x.is_cuda
        and x.dim() == 2
        and x.dtype in DTYPES
        and x.is_contiguous()
        and x.shape[1] % (2 * VECTOR) == 0
        and x.numel() <= MAX_COUNT
        and is_aligned(x)
    )
