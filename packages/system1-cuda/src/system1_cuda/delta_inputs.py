"""What the gated delta rule takes, from a layer's projections, on CUDA."""

from __future__ import annotations

import torch
from torch import Tensor

from system1_cuda.coverage import ALIGNMENT, DTYPES, is_aligned
from system1_torch.ops import delta_inputs as reference
from system1_torch.packed_tree import PackedTree

_TAPS = 4
_WIDTHS = frozenset({64, 128})
# Two tokens a block, blocks counted by the grid's second dimension.
_MAX_TOKENS = 2 * 65_535


def delta_inputs(
    qkv: Tensor,
    b: Tensor,
    a: Tensor,
    conv_weight: Tensor,
    A_log: Tensor,
    dt_bias: Tensor,
    tree: PackedTree,
    key_heads: int,
    key_dim: int,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """As the reference, in one kernel; qkv, b and a may be views of one projection.

    q and k are rounded to qkv's dtype, as the products behind them would do.
    """
    gates = (b, a, A_log, dt_bias)
    if not (
        _covers_rows(qkv, conv_weight, tree.history)
        and _covers_gates(qkv, *gates)
        and key_dim in _WIDTHS
        and qkv.shape[1] == (2 * key_heads + a.shape[1]) * key_dim
    ):
        return reference.delta_inputs(
            qkv, b, a, conv_weight, A_log, dt_bias, tree, key_heads, key_dim
        )
    return torch.ops.system1.delta_inputs.default(
        qkv, b, a, conv_weight, A_log, dt_bias, tree.history, key_heads, key_dim
    )


def _covers_rows(qkv: Tensor, conv_weight: Tensor, history: Tensor) -> bool:
    return (
        qkv.is_cuda
        and qkv.dim() == 2
        and qkv.dtype in DTYPES
        and qkv.stride(1) == 1
        and qkv.stride(0) * qkv.element_size() % ALIGNMENT == 0
        and qkv.shape[0] <= _MAX_TOKENS
        and conv_weight.dtype == qkv.dtype
        and conv_weight.shape == (qkv.shape[1], _TAPS)
        and conv_weight.is_contiguous()
        and is_aligned(qkv, conv_weight)
        and history.is_cuda
        and history.shape == (qkv.shape[0], _TAPS - 1)
        and history.is_contiguous()
    )


def _covers_gates(qkv: Tensor, b: Tensor, a: Tensor, A_log: Tensor, dt_bias: Tensor) -> bool:
    return (
        b.shape == a.shape
        and b.dtype == a.dtype == qkv.dtype
        and b.stride(1) == a.stride(1) == 1
        and all(
            values.dtype in DTYPES and values.is_contiguous() and values.shape == a.shape[1:]
            for values in (A_log, dt_bias)
        )
    )
