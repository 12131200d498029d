"""RMSNorm on CUDA, alone and with the residual addition before it, in 16 bits or in FP8."""

from __future__ import annotations

import torch
from torch import Tensor

from system1_cuda.coverage import covers_residual, covers_rows
from system1_torch.ops import rms_norm as reference
from system1_torch.ops.quantised_linear import QuantisedRows


def rms_norm(x: Tensor, weight: Tensor, eps: float, offset: float = 0.0) -> Tensor:
    """As the reference, in one kernel that reads and writes each row once."""
    if not covers_rows(x, weight):
        return reference.rms_norm(x, weight, eps, offset)
    return torch.ops.system1.rms_norm.default(x, weight, eps, offset)


def add_rms_norm(
    x: Tensor, residual: Tensor, weight: Tensor, eps: float, offset: float = 0.0
) -> tuple[Tensor, Tensor]:
    """As the reference, in one kernel that reads and writes each row once."""
    if not (covers_rows(x, weight) and covers_residual(x, residual)):
        return reference.add_rms_norm(x, residual, weight, eps, offset)
    return torch.ops.system1.add_rms_norm.default(x, residual, weight, eps, offset)


def rms_norm_quantised(
    x: Tensor, weight: Tensor, eps: float, offset: float = 0.0, keep: bool = False
) -> QuantisedRows:
    """As the reference, in one kernel that reads each row once."""
    if not _covers_quantised(x, weight):
        return reference.rms_norm_quantised(x, weight, eps, offset, keep)
    values, scales, normed = torch.ops.system1.rms_norm_quantised.default(
        x, weight, eps, offset, keep
    )
    return QuantisedRows(values, scales, x.dtype, normed if keep else None)


def add_rms_norm_quantised(
    x: Tensor,
    residual: Tensor,
    weight: Tensor,
    eps: float,
    offset: float = 0.0,
    keep: bool = False,
) -> tuple[QuantisedRows, Tensor]:
    """As the reference, in one kernel that reads each row once."""
    if not (_covers_quantised(x, weight, residual) and covers_residual(x, residual)):
        return reference.add_rms_norm_quantised(x, residual, weight, eps, offset, keep)
    values, scales, normed, total = torch.ops.system1.add_rms_norm_quantised.default(
        x, residual, weight, eps, offset, keep
    )
    return QuantisedRows(values, scales, x.dtype, normed if keep else None), total


def _covers_quantised(x: Tensor, *others: Tensor) -> bool:
    weight = others[0]
    is_bfloat16 = all(tensor.dtype == torch.bfloat16 for tensor in (x, *others))
    return is_bfloat16 and x.dim() == 2 and covers_rows(x, weight)
