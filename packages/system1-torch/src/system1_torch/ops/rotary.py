"""Rotary position embedding in half-split form."""

from __future__ import annotations

import torch
from torch import Tensor


def rotary(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate dims j and j + R/2 of every head by the angle of its token.

    Shapes: x [T, H, K]; cos, sin [T, R / 2] float32 with R <= K, dims from R on pass through.
    Computed in float32, returned in x's dtype.
    Source: RoFormer (2021), the half-split layout of GPT-NeoX.
    """
    half = cos.shape[-1]
    cos, sin = cos[:, None], sin[:, None]
    first, second = x[..., :half].float(), x[..., half : 2 * half].float()
    out = torch.empty_like(x, memory_format=torch.contiguous_format)
    out[..., :half] = torch.addcmul(first * cos, second, sin, value=-1)
    out[..., half : 2 * half] = torch.addcmul(second * cos, first, sin)
    if 2 * half < x.shape[-1]:
        out[..., 2 * half :] = x[..., 2 * half :]
    return out
