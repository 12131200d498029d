"""Attention among the patches of each image on CUDA."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from system1_torch.ops import image_attention as reference
from system1_torch.ops.image_attention import by_equal_lengths

# Hopper: the first chips with warpgroup products, for which cuDNN has kernels of its own.
_HOPPER = 9
# cuDNN's kernels take heads of so many values, and of multiples of eight.
_MAX_HEAD = 128
# It refuses a sequence of one; no image that a model takes has fewer patches than this.
_LEAST_CUDNN = 64


def image_attention(
    q: Tensor, k: Tensor, v: Tensor, lengths: Sequence[int], *, is_recurring: bool = False
) -> Tensor:
    """As the reference; lengths that recur get cuDNN's kernels on Hopper.

    cuDNN plans for each shape, which takes longer than many passes: FlashAttention, which does
    not, serves lengths that may never come again.
    """
    if not _flash_covers(q):
        return reference.image_attention(q, k, v, lengths, is_recurring=is_recurring)
    attend = _cudnn if is_recurring and _cudnn_covers(q, lengths) else _flash
    return by_equal_lengths(attend, q, k, v, lengths)


def _cudnn(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return torch.ops.aten._scaled_dot_product_cudnn_attention(
        q, k, v, None, False, 0.0, False, False
    )[0]


def _flash(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return torch.ops.aten._scaled_dot_product_flash_attention(q, k, v, 0.0, False, False)[0]


def _flash_covers(q: Tensor) -> bool:
    is_narrow = q.dtype in (torch.float16, torch.bfloat16)
    return q.is_cuda and is_narrow and q.shape[2] % 8 == 0 and q.shape[2] <= _MAX_HEAD


def _cudnn_covers(q: Tensor, lengths: Sequence[int]) -> bool:
    return (
        min(lengths) >= _LEAST_CUDNN
        and torch.backends.cudnn.is_available()
        and torch.cuda.get_device_capability(q.device)[0] >= _HOPPER
    )
