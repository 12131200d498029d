"""Linear layers in FP8: a scale for each weight row, a scale for each token."""

from __future__ import annotations

import torch
from torch import Tensor

FP8 = torch.float8_e4m3fn
FP8_MAX = torch.finfo(FP8).max
# Keeps an all-zero row from dividing by zero; far under any scale that matters.
_MIN_SCALE = 1e-12


def quantise_rows(x: Tensor) -> tuple[Tensor, Tensor]:
    """Each row divided by its scale, the largest magnitude over 448, and rounded to FP8 E4M3.

    Shapes: x [R, K]; returns (values [R, K] float8_e4m3fn, scales [R] float32).
    """
    x32 = x.float()
    scales = (x32.abs().amax(-1) / FP8_MAX).clamp_min(_MIN_SCALE)
    values = (x32 / scales[:, None]).clamp(-FP8_MAX, FP8_MAX).to(FP8)
    return values, scales


def quantised_linear(x: Tensor, weight: Tensor, weight_scale: Tensor) -> Tensor:
    """`x @ weight.T` with x quantised by token and the weight quantised by output channel.

    Shapes: x [T, K]; weight [N, K] float8_e4m3fn; weight_scale [N] float32. Accumulates in
    float32, scales the sums, casts once; returns [T, N] in x's dtype.
    """
    values, scales = quantise_rows(x)
    sums = values.float() @ weight.float().T
    return (sums * scales[:, None] * weight_scale).to(x.dtype)
