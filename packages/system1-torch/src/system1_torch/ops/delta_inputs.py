"""From the projections of a Gated DeltaNet layer to what its recurrence takes."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from system1_torch.ops.tree_conv1d import tree_conv1d
from system1_torch.packed_tree import PackedTree


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
    """Convolution, SiLU, split, L2 norm and gates: returns q, k, v, g, beta.

    Shapes: qkv [T, 2 H K + HV V] in the order q, k, v; b, a [T, HV]; conv_weight [C, W + 1];
    A_log, dt_bias [HV]. Returns q, k [T, H, K] fp32, of unit length, q times K^-0.5;
    v [T, HV, V] and beta [T, HV] in qkv's dtype; g [T, HV] fp32, the log decay, never above 0.
    """
    heads_v = a.shape[1]
    mixed = tree_conv1d(qkv, conv_weight, tree)
    width = key_heads * key_dim
    q, k, v = mixed.split([width, width, mixed.shape[1] - 2 * width], dim=1)
    q = _unit(q.unflatten(1, (key_heads, key_dim))) * key_dim**-0.5
    k = _unit(k.unflatten(1, (key_heads, key_dim)))
    g = -A_log.float().exp() * F.softplus(a.float() + dt_bias.float())
    return q, k, v.unflatten(1, (heads_v, -1)), g, torch.sigmoid(b)


def _unit(x: Tensor) -> Tensor:
    x = x.float()
    return x * torch.rsqrt(x.square().sum(-1, keepdim=True) + 1e-6)
