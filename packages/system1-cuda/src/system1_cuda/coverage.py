"""Which tensors the kernels take; what they don't goes to the reference."""

from __future__ import annotations

import torch
from torch import Tensor

DTYPES = frozenset({torch.float32, torch.float16, torch.bfloat16})
# Kernels move eight values, or 16 bytes, at a time.
VECTOR = 8
ALIGNMENT = 16
# One block of 1,024 threads holds a row.
MAX_ROW_WIDTH = 8192
# Threads are counted in 32 bits.
MAX_COUNT = 2**31 - 1


def is_aligned(*tensors: Tensor | None) -> bool:
    """Whether the tensors that are there begin at 16 bytes."""
    return all(tensor is None or tensor.data_ptr() % ALIGNMENT == 0 for tensor in tensors)


def covers_rows(x: Tensor, *parameters: Tensor | None) -> bool:
    """Whether a row kernel takes x [..., D] and its parameters [D].

    Parameters are of one dtype, x's or float32.
    """
    found = [parameter for parameter in parameters if parameter is not None]
    dtypes = {parameter.dtype for parameter in found}
    return (
        x.is_cuda
        and x.dtype in DTYPES
        and x.is_contiguous()
        and 0 < x.shape[-1] <= MAX_ROW_WIDTH
        and x.shape[-1] % VECTOR == 0
        and x.numel() // x.shape[-1] <= MAX_COUNT
        and (dtypes == {x.dtype} or dtypes == {torch.float32})
        and all(parameter.is_contiguous() and parameter.is_cuda for parameter in found)
        and is_aligned(x, *found)
    )


def covers_residual(x: Tensor, residual: Tensor) -> bool:
    """Whether the residual has x's shape and x's dtype or float32."""
    return (
        residual.shape == x.shape
        and residual.dtype in (x.dtype, torch.float32)
        and residual.is_cuda
        and residual.is_contiguous()
        and is_aligned(residual)
    )


def covers_heads(x: Tensor) -> bool:
    """Whether x [T, H, K] has heads that begin at 16 bytes, whatever its strides."""
    if not (x.is_cuda and x.dtype in DTYPES and x.dim() == 3 and x.stride(2) == 1):
        return False
    steps = (x.stride(0) * x.element_size(), x.stride(1) * x.element_size())
    return is_aligned(x) and all(step % ALIGNMENT == 0 for step in steps)
