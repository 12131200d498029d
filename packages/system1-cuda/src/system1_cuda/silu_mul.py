"""The gate of a SwiGLU MLP on CUDA, in 16 bits or in FP8."""

from __future__ import annotations

import torch
from torch import Tensor

from system1_cuda.coverage import DTYPES, MAX_COUNT, VECTOR, is_aligned
from system1_torch.ops import silu_mul as reference
from system1_torch.ops.quantised_linear import QuantisedRows

# Four times eight values a thread of a block hold a row.
_MAX_QUANTISED_WIDTH = 32_768


def silu_mul(gate_up: Tensor) -> Tensor:
    """As the reference, in one kernel that reads and writes each value once."""
    if not covers_halves(gate_up):
        return reference.silu_mul(gate_up)
    return torch.ops.system1.silu_mul.default(gate_up)


def silu_mul_quantised(gate_up: Tensor) -> QuantisedRows:
    """As the reference, in one kernel that reads each value once."""
    if not (
        gate_up.dtype == torch.bfloat16
        and covers_halves(gate_up)
        and 0 < gate_up.shape[1] <= 2 * _MAX_QUANTISED_WIDTH
    ):
        return reference.silu_mul_quantised(gate_up)
    values, scales = torch.ops.system1.silu_mul_quantised.default(gate_up)
    return QuantisedRows(values, scales, gate_up.dtype)


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
