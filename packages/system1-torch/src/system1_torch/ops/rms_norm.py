"""RMSNorm, alone and with the residual add that precedes it, in 16 bits or in FP8."""

from __future__ import annotations

import torch
from torch import Tensor

from system1_torch.ops.quantised_linear import QuantisedRows


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


def rms_norm_quantised(
    x: Tensor, weight: Tensor, eps: float, offset: float = 0.0, keep: bool = False
) -> QuantisedRows:
    """`rms_norm` of rows [T, D], rounded to x's dtype and then quantised.

    With `keep` the rounded rows are its `source`.
    """
    return QuantisedRows.of(rms_norm(x, weight, eps, offset), keep=keep)


def add_rms_norm_quantised(
    x: Tensor,
    residual: Tensor,
    weight: Tensor,
    eps: float,
    offset: float = 0.0,
    keep: bool = False,
) -> tuple[QuantisedRows, Tensor]:
    """`add_rms_norm` with its normed rows rounded to x's dtype and then quantised.

    With `keep` the rounded rows are their `source`.
    """
    normed, total = add_rms_norm(x, residual, weight, eps, offset)
    return QuantisedRows.of(normed, keep=keep), total
