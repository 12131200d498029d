"""The normaliser of a full vocabulary on CUDA: logits live in registers only."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from system1_cuda.coverage import is_aligned
from system1_torch.ops import log_sum_exp as reference

_DTYPES = frozenset({torch.float16, torch.bfloat16})
_WORDS, _DEPTH = 128, 64
# More rows make the product bound by arithmetic, where cuBLAS is better.
_MAX_ROWS = 64


def log_sum_exp(hidden: Tensor, weight: Tensor, chunk_rows: int = 8192) -> Tensor:
    """As the reference; up to 64 rows of 16 bits in one pass over the vocabulary's weights."""
    if not _covers(hidden, weight):
        return reference.log_sum_exp(hidden, weight, chunk_rows)
    count, width = hidden.shape
    blocks = triton.cdiv(weight.shape[0], _WORDS)
    parts = torch.empty(blocks, count, dtype=torch.float32, device=hidden.device)
    _sum_block[(blocks,)](
        hidden, weight, parts, count, weight.shape[0], width,
        hidden.stride(0), weight.stride(0),
        COUNT=max(16, triton.next_power_of_2(count)), WORDS=_WORDS, DEPTH=_DEPTH,
        num_warps=4, num_stages=4,
    )  # fmt: skip
    return torch.logsumexp(parts, 0)


def _covers(hidden: Tensor, weight: Tensor) -> bool:
    return (
        hidden.is_cuda
        and hidden.dtype == weight.dtype
        and hidden.dtype in _DTYPES
        and 0 < hidden.shape[0] <= _MAX_ROWS
        and hidden.shape[1] % _DEPTH == 0
        and hidden.stride(1) == weight.stride(1) == 1
        and is_aligned(hidden, weight)
    )


@triton.jit
def _sum_block(
    hidden, weight, parts, count, words, width, hidden_stride, weight_stride,
    COUNT: tl.constexpr, WORDS: tl.constexpr, DEPTH: tl.constexpr,
):  # fmt: skip
    """log of the sum of exp over WORDS words of the vocabulary, for every row."""
    block = tl.program_id(0)
    row, word, depth = tl.arange(0, COUNT), tl.arange(0, WORDS), tl.arange(0, DEPTH)
    name = (block * WORDS + word).to(tl.int64)
    is_row, is_word = (row < count)[:, None], (name < words)[:, None]
    sums = tl.zeros((COUNT, WORDS), tl.float32)
    for begin in range(0, width, DEPTH):
        at = begin + depth[None, :]
        x = tl.load(hidden + row[:, None] * hidden_stride + at, mask=is_row, other=0.0)
        w = tl.load(weight + name[:, None] * weight_stride + at, mask=is_word, other=0.0)
        sums = tl.dot(x, tl.trans(w), sums)
    # Logits are rounded as a vocabulary head gives them.
    logits = sums.to(hidden.dtype.element_ty).to(tl.float32)
    logits = tl.where((name < words)[None, :], logits, float("-inf"))
    top = tl.max(logits, 1)
    found = top + tl.log(tl.sum(tl.exp(logits - top[:, None]), 1))
    tl.store(parts + block * count + row, found, mask=row < count)
