"""RMSNorm of each head, then rotary positions on its first dimensions."""

from __future__ import annotations

import torch
from torch import Tensor

from system1_torch.ops.rms_norm import rms_norm


def norm_rope(x: Tensor, weight: Tensor, cos: Tensor, sin: Tensor, eps: float) -> Tensor:
    """Zero-centred RMSNorm over each head, then rotate the first R of its dimensions.

    Shapes: x [T, H, D]; weight [D]; cos, sin [T, R] in x's dtype, dimension i paired with
    i + R / 2. Both products and their sum round to x's dtype.
    """
    rotary = cos.shape[1]
    x = rms_norm(x, weight, eps, 1.0)
    turned, kept = x[..., :rotary], x[..., rotary:]
    first, second = turned.chunk(2, dim=-1)
    swapped = torch.cat([-second, first], dim=-1)
    turned = turned * cos[:, None] + swapped * sin[:, None]
    return torch.cat([turned, kept], dim=-1)
