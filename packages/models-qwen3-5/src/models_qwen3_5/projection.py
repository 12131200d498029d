"""Fused linear layers: several of a checkpoint's weights as one, in 16 bits or in FP8."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn

from models_qwen3_5.ops import Ops
from system1_torch.ops.quantised_linear import FP8, QuantisedRows, quantise_rows

# Bounds the float32 scratch of quantising: a few times 71 MB for the widest rows of 27B.
_CHUNK_ROWS = 1024


class Projection(nn.Module):
    """Weights [width, K] of one input, stacked by rows; `forward` gives each its output.

    `quantise` leaves the last `plain` of them as they are.
    """

    scale: nn.Parameter | None
    rest: nn.Parameter | None

    def __init__(self, widths: Sequence[int], columns: int, *, plain: int = 0) -> None:
        super().__init__()
        self.widths = list(widths)
        self.plain = plain
        self.weight = nn.Parameter(torch.empty(sum(widths), columns), requires_grad=False)
        self.scale = None
        self.rest = None

    def parts(self) -> Iterator[Tensor]:
        """Views of the stacked weights, for loading; gone once quantised."""
        assert self.scale is None, "a quantised projection has no weights to load"
        yield from self.weight.split(self.widths)

    @property
    def is_quantised(self) -> bool:
        return self.scale is not None

    @property
    def is_mixed(self) -> bool:
        """Whether it is quantised and reads its input in 16 bits as well."""
        return self.rest is not None

    def forward(self, x: Tensor | QuantisedRows, ops: Ops) -> tuple[Tensor, ...]:
        """x [T, K] times each weight: [T, width] views of at most two products.

        Quantised, it takes rows that are so already, with their source where it `is_mixed`.
        """
        if self.scale is None:
            return ops.linear(x, self.weight).split(self.widths, dim=1)
        count = len(self.widths) - self.plain
        outputs = ops.quantised_linear(x, self.weight, self.scale).split(self.widths[:count], dim=1)
        if self.rest is None:
            return outputs
        exact = x.source if isinstance(x, QuantisedRows) else x
        return (*outputs, *ops.linear(exact, self.rest).split(self.widths[count:], dim=1))

    def part(
        self, start: int, stop: int, x: Tensor | QuantisedRows, ops: Ops
    ) -> tuple[Tensor, ...]:
        """As `forward`, with the weights from `start` to `stop` alone."""
        assert self.rest is None, "a projection with a plain part runs whole"
        widths = self.widths[start:stop]
        begin = sum(self.widths[:start])
        rows = slice(begin, begin + sum(widths))
        if self.scale is None:
            return ops.linear(x, self.weight[rows]).split(widths, dim=1)
        outputs = ops.quantised_linear(x, self.weight[rows], self.scale[rows])
        return outputs.split(widths, dim=1)

    def quantise(self) -> None:
        """Turn the weight into FP8 with a scale for each row; its first form is freed.

        Once is enough: networks may share a projection.
        """
        if self.scale is not None:
            return
        count = sum(self.widths[: len(self.widths) - self.plain])
        weight = self.weight
        values = weight.new_empty(count, weight.shape[1], dtype=FP8)
        scales = weight.new_empty(count, dtype=torch.float32)
        for begin in range(0, count, _CHUNK_ROWS):
            rows = slice(begin, min(begin + _CHUNK_ROWS, count))
            values[rows], scales[rows] = quantise_rows(weight[rows])
        if self.plain:
            self.rest = _constant(weight[count:].clone())
        self.weight, self.scale = _constant(values), _constant(scales)


def _constant(values: Tensor) -> nn.Parameter:
    return nn.Parameter(values, requires_grad=False)
