"""Depthwise causal convolution over a packed tree."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from system1_torch.packed_tree import PackedTree


def tree_conv1d(x: Tensor, weight: Tensor, tree: PackedTree) -> Tensor:
    """silu(conv(x)): each token sees itself and the W tokens before it, through the parents.

    Shapes: x [T, C]; weight [C, W + 1], the last tap for the current token; the tree's history
    [T, W]. Zeros before the first token. Sums in fp32, rounds to x's dtype, then SiLU.
    """
    width = weight.shape[1] - 1
    total = x.float() * weight[:, width].float()
    padded = torch.cat([x, x.new_zeros(1, x.shape[1])])  # history -1 reads the row of zeros
    for back in range(width):
        rows = padded[tree.history[:, back]]
        total += rows.float() * weight[:, width - 1 - back].float()
    return F.silu(total.to(x.dtype))
