"""Attention among the patches of each image, over packed images."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby

import torch
from torch import Tensor
from torch.nn import functional


def image_attention(
    q: Tensor, k: Tensor, v: Tensor, lengths: Sequence[int], *, is_recurring: bool = False
) -> Tensor:
    """Softmax attention inside each image; lengths, in patches, are on the host.

    Shapes: q, k, v [P, H, K], P the sum of `lengths`. Scale 1 / sqrt(K), softmax accumulated in
    float32; returns [P, H, K] in q's dtype. `is_recurring` says that these lengths come again, so
    that a plan made for them pays.
    """
    return by_equal_lengths(functional.scaled_dot_product_attention, q, k, v, lengths)


def by_equal_lengths(
    attend: Callable[[Tensor, Tensor, Tensor], Tensor],
    q: Tensor,
    k: Tensor,
    v: Tensor,
    lengths: Sequence[int],
) -> Tensor:
    """`attend` on [N, H, L, K] for each run of images of one length, packed again."""
    parts, begin = [], 0
    for length, run in groupby(lengths):
        end = begin + length * len(list(run))
        views = (x[begin:end].unflatten(0, (-1, length)).transpose(1, 2) for x in (q, k, v))
        parts.append(attend(*views).transpose(1, 2).flatten(0, 1))
        begin = end
    return parts[0] if len(parts) == 1 else torch.cat(parts)
