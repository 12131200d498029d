"""The norm after the gated delta rule, on CUDA, in 16 bits or in FP8."""

from __future__ import annotations

import torch
from torch import Tensor

from system1_cuda.coverage import MAX_COUNT, MAX_ROW_WIDTH, covers_heads, is_aligned
from system1_torch.ops import gated_rms_norm as reference
from system1_torch.ops.quantised_linear import QuantisedRows

# A warp holds a head, two, four or eight values a lane.
_WIDTHS = frozenset({64, 128, 256})


def gated_rms_norm(x: Tensor, gate: Tensor, weight: Tensor, eps: float) -> Tensor:
    """As the reference, in one kernel; x and gate may be views with strides."""
    if not _covers(x, gate, weight):
        return reference.gated_rms_norm(x, gate, weight, eps)
    return torch.ops.system1.gated_rms_norm.default(x, gate, weight, eps)


def gated_rms_norm_quantised(x: Tensor, gate: Tensor, weight: Tensor, eps: float) -> QuantisedRows:
    """As the reference, in one kernel; x and gate may be views with strides."""
    if not (
        x.dtype == weight.dtype == torch.bfloat16
        and _covers(x, gate, weight)
        and x.shape[1] * x.shape[2] <= MAX_ROW_WIDTH
    ):
        return reference.gated_rms_norm_quantised(x, gate, weight, eps)
    values, scales = torch.ops.system1.gated_rms_norm_quantised.default(x, gate, weight, eps)
    return QuantisedRows(values, scales, x.dtype)


def _covers(x: Tensor, gate: Tensor, weight: Tensor) -> bool:
    return (
        covers_heads(x)
        and covers_heads(gate)
        and x.shape == gate.shape
        and x.dtype == gate.dtype
        and x.shape[2] in _WIDTHS
        and x.shape[0] * x.shape[1] <= MAX_COUNT
        and weight.dtype in (x.dtype, torch.float32)
        and weight.is_contiguous()
        and is_aligned(weight)
    )
