"""A linear layer with the tanh form of GELU on CUDA."""

from __future__ import annotations

import torch
from torch import Tensor

from system1_torch.ops import linear_gelu as reference

# cuBLASLt's epilogue wants whole vectors of 16 bytes in every row.
_VECTOR = 8


def linear_gelu(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """As the reference, with the GELU in the epilogue of the product, before its rounding."""
    if not _covers(x, weight, bias):
        return reference.linear_gelu(x, weight, bias)
    return torch.ops.aten._addmm_activation(bias, x, weight.t(), use_gelu=True)


def _covers(x: Tensor, weight: Tensor, bias: Tensor) -> bool:
    return (
        x.is_cuda
        and x.dtype in (torch.float16, torch.bfloat16)
        and x.dtype == weight.dtype == bias.dtype
        and x.dim() == 2
        and x.shape[0] > 1
        and all(part.is_contiguous() for part in (x, weight, bias))
        and weight.shape[0] % _VECTOR == 0 == weight.shape[1] % _VECTOR
    )
