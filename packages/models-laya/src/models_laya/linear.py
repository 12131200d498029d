"""Matrix products, with weights packed for oneDNN where the CPU gains from it."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

# Rows the packed layout is chosen for; any number of rows runs on it.
_TYPICAL_ROWS = 256


class Linear:
    """x @ weight.T + bias; `activation` is "none", "relu" or "gelu" (exact)."""

    def __init__(self, weight: Tensor, bias: Tensor | None, activation: str = "none") -> None:
        self._weight = weight
        self._bias = None if bias is None else bias.to(weight.dtype)
        self._activate = {"none": _identity, "relu": torch.relu, "gelu": functional.gelu}[
            activation
        ]

    def __call__(self, x: Tensor) -> Tensor:
        return self._activate(functional.linear(x, self._weight, self._bias))


class PackedLinear(Linear):
    """The same on a CPU, through oneDNN: weight laid out once, activation inside the product.

    The packed weight takes the place of the plain one. torch reorders a plain weight in every
    call (bfloat16) or hands it to MKL, which is slower on AMD.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None, activation: str = "none") -> None:
        self._packed = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), _TYPICAL_ROWS)
        self._bias = bias
        self._activation = activation
        # The last argument chooses the exact gelu, which oneDNN computes on the accumulators.
        self._variant = "none" if activation == "gelu" else ""

    def __call__(self, x: Tensor) -> Tensor:
        return torch.ops.mkldnn._linear_pointwise(
            x, self._packed, self._bias, self._activation, [], self._variant
        )

    def times(self, x: Tensor, other: Tensor) -> Tensor:
        """(x @ weight.T + bias) * other, without an activation."""
        return torch.ops.mkldnn._linear_pointwise.binary(x, other, self._packed, self._bias, "mul")


class GegluLinear:
    """gelu(first half of x @ weight.T) * second half."""

    def __init__(self, weight: Tensor, geglu: Callable[[Tensor], Tensor]) -> None:
        self._product, self._geglu = Linear(weight, None), geglu

    def __call__(self, x: Tensor) -> Tensor:
        return self._geglu(self._product(x))


class PackedGegluLinear:
    """The same with both halves packed and gelu and the product inside the matrix products."""

    def __init__(self, weight: Tensor) -> None:
        first, second = weight.chunk(2)
        self._first = PackedLinear(first, None, "gelu")
        self._second = PackedLinear(second, None)

    def __call__(self, x: Tensor) -> Tensor:
        return self._second.times(x, self._first(x))


def can_pack(dtype: torch.dtype, device: torch.device) -> bool:
    """Whether oneDNN multiplies in `dtype` here, and this torch offers packed weights."""
    if device.type != "cpu" or not torch.backends.mkldnn.is_available():
        return False
    if not hasattr(torch.ops.mkldnn, "_linear_pointwise"):
        return False
    if dtype == torch.bfloat16:
        return torch.ops.mkldnn._is_mkldnn_bf16_supported()
    return dtype == torch.float32


def make_linear(weight: Tensor, bias: Tensor | None = None, activation: str = "none") -> Linear:
    """The fastest Linear for the weight's device and dtype; `bias` stays float32 where it may."""
    kind = PackedLinear if can_pack(weight.dtype, weight.device) else Linear
    return kind(weight, bias, activation)


def make_geglu_linear(
    weight: Tensor, geglu: Callable[[Tensor], Tensor], is_reference: bool
) -> GegluLinear | PackedGegluLinear:
    """The fastest gated product; a backend's own `geglu` is never bypassed."""
    if is_reference and can_pack(weight.dtype, weight.device):
        return PackedGegluLinear(weight)
    return GegluLinear(weight, geglu)


def _identity(x: Tensor) -> Tensor:
    return x
