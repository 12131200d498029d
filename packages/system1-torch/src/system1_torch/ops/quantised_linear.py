"""Linear layers in FP8: a scale for each weight row, a scale for each token."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

FP8 = torch.float8_e4m3fn
FP8_MAX = torch.finfo(FP8).max
# Keeps an all-zero row from dividing by zero; far under any scale that matters.
_MIN_SCALE = 1e-12


@dataclass(frozen=True, slots=True)
class QuantisedRows:
    """Rows in FP8 with a scale each, and the rows they were made of where a caller kept them.

    Shapes: values [T, K] float8_e4m3fn; scales [T] float32; source [T, K] in `dtype`, which is
    the dtype of products by these rows.
    """

    values: Tensor
    scales: Tensor
    dtype: torch.dtype
    source: Tensor | None = None

    @classmethod
    def of(cls, x: Tensor, *, keep: bool = False) -> QuantisedRows:
        """x [T, K] by `quantise_rows`; with `keep` x stays beside it."""
        return cls(*quantise_rows(x), x.dtype, x if keep else None)

    def __getitem__(self, rows: Tensor) -> QuantisedRows:
        """The rows at these places, [R] int64."""
        # As bytes: not every device gathers FP8.
        values = self.values.view(torch.uint8)[rows].view(FP8)
        source = None if self.source is None else self.source[rows]
        return QuantisedRows(values, self.scales[rows], self.dtype, source)


def quantise_rows(x: Tensor) -> tuple[Tensor, Tensor]:
    """Each row divided by its scale, the largest magnitude over 448, and rounded to FP8 E4M3.

    Shapes: x [R, K]; returns (values [R, K] float8_e4m3fn, scales [R] float32).
    """
    x32 = x.float()
    scales = (x32.abs().amax(-1) / FP8_MAX).clamp_min(_MIN_SCALE)
    values = (x32 / scales[:, None]).clamp(-FP8_MAX, FP8_MAX).to(FP8)
    return values, scales


def quantised_linear(x: Tensor | QuantisedRows, weight: Tensor, weight_scale: Tensor) -> Tensor:
    """`x @ weight.T` with x quantised by token and the weight quantised by output channel.

    Shapes: x [T, K], quantised here unless it is already; weight [N, K] float8_e4m3fn;
    weight_scale [N] float32. Accumulates in float32, scales the sums, casts once; returns [T, N]
    in x's dtype.
    """
    rows = x if isinstance(x, QuantisedRows) else QuantisedRows.of(x)
    sums = rows.values.float() @ weight.float().T
    return (sums * rows.scales[:, None] * weight_scale).to(rows.dtype)
