"""LayerNorm, alone and fused with the residual addition before it."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional


def layer_norm(x: Tensor, weight: Tensor, bias: Tensor | None, eps: float) -> Tensor:
    """LayerNorm over the last axis.

    Shapes: x [..., D]; weight, bias [D], bias may be None. Statistics, weight and bias in
    float32 whatever their dtype; returns x's dtype.
    """
    if x.dtype == torch.float32 == weight.dtype:
        return functional.layer_norm(x, weight.shape, weight, bias, eps)
    bias = None if bias is None else bias.float()
    return functional.layer_norm(x.float(), weight.shape, weight.float(), bias, eps).to(x.dtype)


def residual_layer_norm(
    x: Tensor, residual: Tensor, weight: Tensor, bias: Tensor | None, eps: float
) -> tuple[Tensor, Tensor]:
    """LayerNorm of residual + x, and that sum: (normed, summed).

    Shapes: x, residual [..., D]; weight, bias [D], bias may be None. The sum has the residual's
    dtype (float32 keeps a long residual stream exact under a narrower x), the normed rows x's.
    """
    summed = (residual + x).to(residual.dtype)
    normed = layer_norm(summed, weight, bias, eps)
    return normed.to(x.dtype), summed
