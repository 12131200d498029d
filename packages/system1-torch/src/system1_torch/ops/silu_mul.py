"""The gate of a SwiGLU MLP, in 16 bits or in FP8."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from system1_torch.ops.quantised_linear import QuantisedRows


def silu_mul(gate_up: Tensor) -> Tensor:
    """SiLU of the first half times the second half.

    Shapes: gate_up [T, 2 * I], returns [T, I]. The SiLU and the product are each rounded to the
    input's dtype, as Qwen3.5's MLP does it.
    Source: GLU Variants Improve Transformer (2020).
    """
    gate, up = gate_up.chunk(2, dim=-1)
    return F.silu(gate) * up


def silu_mul_quantised(gate_up: Tensor) -> QuantisedRows:
    """`silu_mul`, rounded to the input's dtype and then quantised."""
    return QuantisedRows.of(silu_mul(gate_up))
