"""The norm after the gated delta rule, in 16 bits or in FP8."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from system1_torch.ops.quantised_linear import QuantisedRows


def gated_rms_norm(x: Tensor, gate: Tensor, weight: Tensor, eps: float) -> Tensor:
    """RMSNorm of each head, times its weight, times SiLU of the gate.

    Shapes: x, gate [T, H, V]; weight [V]. The norm is in float32, rounded to x's dtype, times
    the weight and rounded again; the gate's SiLU and the last product are in float32.
    Source: Gated Delta Networks (ICLR 2025); rounding points as Qwen3.5 has them.
    """
    x32 = x.float()
    normed = (x32 * torch.rsqrt(x32.square().mean(-1, keepdim=True) + eps)).to(x.dtype)
    weighted = normed * weight.to(x.dtype)
    return (weighted.float() * F.silu(gate.float())).to(x.dtype)


def gated_rms_norm_quantised(x: Tensor, gate: Tensor, weight: Tensor, eps: float) -> QuantisedRows:
    """`gated_rms_norm` of a token's heads as one row [T, H * V], rounded and then quantised."""
    return QuantisedRows.of(gated_rms_norm(x, gate, weight, eps).flatten(1))
