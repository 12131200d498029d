"""Linear layers in FP8 on CUDA: tokens quantised before or by a kernel here, then one product."""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor

from system1_cuda.coverage import ALIGNMENT, VECTOR, is_aligned
from system1_cuda.gemm import Product
from system1_cuda.linear import multiply
from system1_torch.ops import quantised_linear as reference
from system1_torch.ops.quantised_linear import QuantisedRows

# The first chips whose matrix units take FP8, and what torch asks of both sides of a product.
_CAPABILITY = (8, 9)
_MULTIPLE = 16
_MAX_WIDTH = 32_768


def quantised_linear(x: Tensor | QuantisedRows, weight: Tensor, weight_scale: Tensor) -> Tensor:
    """As the reference; sums in float32 within the matrix units' fast accumulation."""
    if not _covers(x, weight):
        return reference.quantised_linear(x, weight, weight_scale)
    if isinstance(x, QuantisedRows):
        values, scales = x.values, x.scales
    else:
        values, scales = torch.ops.system1.quantise_rows.default(x)
    return multiply(
        Product(x=values, weight=weight, x_scale=scales, weight_scale=weight_scale, dtype=x.dtype)
    )


def _covers(x: Tensor | QuantisedRows, weight: Tensor) -> bool:
    rows = x.values if isinstance(x, QuantisedRows) else x
    return (
        rows.is_cuda
        # Row-wise scales give bfloat16 only.
        and x.dtype == torch.bfloat16
        and rows.dim() == 2
        and rows.shape[0] > 0
        and rows.stride(1) == 1
        and rows.stride(0) % VECTOR == 0
        and (rows is x or rows.is_contiguous())
        and rows.shape[1] <= _MAX_WIDTH
        and rows.shape[1] % _MULTIPLE == weight.shape[0] % _MULTIPLE == 0
        and weight.is_contiguous()
        and weight.data_ptr() % ALIGNMENT == 0
        and is_aligned(rows)
        and _capability(rows.device.index or 0) >= _CAPABILITY
    )


@cache
def _capability(device: int) -> tuple[int, int]:
    return torch.cuda.get_device_capability(device)
