"""A linear layer and the tanh form of GELU behind it."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional


def linear_gelu(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """gelu_tanh(x @ weight^T + bias); the sum is rounded to x's dtype before the GELU.

    Shapes: x [T, D]; weight [I, D]; bias [I]; returns [T, I]. A kernel may leave that rounding
    out: it is then closer to float32.
    """
    return functional.gelu(functional.linear(x, weight, bias), approximate="tanh")
