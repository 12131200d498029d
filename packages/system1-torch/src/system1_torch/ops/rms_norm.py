"""RMSNorm, with the residual add that precedes it, and the gated form of Gated DeltaNet."""

from __future__ import annotations

import torch
from torch import Tensor


def rms_norm(x: Tensor, weight: Tensor, eps: float, offset: float = 0.0) -> Tensor:
    """Root mean square norm of the last dimension, times `offset + weight`.

    Shapes: x [..., D], weight [D]. Float32 inside, cast once to x's dtype.
    `offset` is 1 where the weight is stored minus one (Qwen3.5).
    Source: Root Mean Square Layer Normalization (2019).
    """
    x32 = x.float()
    scaled = x32 * torch.rsqrt(x32.square().mean(-1, keepdim=True) + eps)
    return (scaled * (offset + weight.float())).to(x.dtype)


def add_rms_norm(
    x: Tensor, residual: Tensor, weight: Tensor, eps: float, offset: float = 0.0
) -> tuple[Tensor, Tensor]:
    """`residual + x` and its RMSNorm, as (normed, sum).

    Shapes: x, residual [T, D]; weight [D]. The sum is rounded to the residual's dtype first, and
    the norm reads the rounded sum; `normed` has x's dtype. Nothing is changed in place.
    """
    total = residual + x
    return rms_norm(total, weight, eps, offset).to(x.dtype), total.to(residual.dtype)
