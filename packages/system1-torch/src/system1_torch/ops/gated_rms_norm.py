"""The norm after the gated delta rule."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


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
