"""Bidirectional attention over packed sequences, full or within a window."""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise

import torch
from torch import Tensor
from torch.nn import functional


def local_attention(
    q: Tensor, k: Tensor, v: Tensor, cu_seqlens: Tensor, max_seqlen: int, window: int | None
) -> Tensor:
    """Softmax attention inside each sequence; query i sees keys j with |i - j| <= window.

    Shapes: q, k, v [T, H, K]; cu_seqlens [N + 1] int32; window None sees the whole sequence.
    Scale 1 / sqrt(K), softmax accumulated in float32; returns [T, H, K] in q's dtype.
    Raises ValueError if the window is negative.
    """
    if window is not None and window < 0:
        raise ValueError(f"local_attention: window is {window}, expected 0 or more")
    if window is not None and window >= max_seqlen - 1:
        window = None
    bounds = cu_seqlens.tolist()
    out = torch.empty_like(q, memory_format=torch.contiguous_format)
    for begin, end in pairwise(bounds):
        if begin < end:
            rows = slice(begin, end)
            out[rows] = _attend(q[rows], k[rows], v[rows], window)
    return out


def _attend(q: Tensor, k: Tensor, v: Tensor, window: int | None) -> Tensor:
    """One sequence, [L, H, K]."""
    length = q.shape[0]
    if window is None or window >= length - 1:
        return _dense(q, k, v, None)
    # Blocks were slower than a dense mask below about six windows (two cores, H 16, K 64).
    if window == 0 or length < 6 * window:
        return _dense(q, k, v, _window_mask(length, window, q.dtype, q.device))
    return _blocked(q, k, v, window)


def _dense(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
    q, k, v = (x.transpose(0, 1).unsqueeze(0) for x in (q, k, v))
    return functional.scaled_dot_product_attention(q, k, v, mask)[0].transpose(0, 1)


@lru_cache(128)
def _window_mask(length: int, window: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Added to the scores, [L, L]; every local layer of a model asks for the same few."""
    with torch.inference_mode(False):
        positions = torch.arange(length, device=device)
        is_far = (positions[:, None] - positions).abs() > window
        mask = torch.zeros(length, length, dtype=dtype, device=device)
        return mask.masked_fill_(is_far, -torch.inf)


def _blocked(q: Tensor, k: Tensor, v: Tensor, window: int) -> Tensor:
    """Blocks of `window` queries, each against its own block and one more on either side."""
    length, heads, dim = q.shape
    blocks = -(-length // window)
    tail = blocks * window - length
    q = functional.pad(q, (0, 0, 0, 0, 0, tail)).view(blocks, window, heads, dim)
    k, v = (
        functional.pad(x, (0, 0, 0, 0, window, tail + window)).unfold(0, 3 * window, window)
        for x in (k, v)
    )
    out = functional.scaled_dot_product_attention(
        q.transpose(1, 2),
        k.transpose(2, 3),
        v.transpose(2, 3),
        _block_mask(length, blocks, window, q.device),
    )
    return out.transpose(1, 2).reshape(-1, heads, dim)[:length]


def _block_mask(length: int, blocks: int, window: int, device: torch.device) -> Tensor:
    """[blocks, 1, window, 3 * window]: in the window, and a key that exists.

    A query beyond the end sees one key, so that no row of the softmax is empty.
    """
    query = torch.arange(window, device=device)[:, None] + window
    key = torch.arange(3 * window, device=device)
    near = (query - key).abs() <= window
    positions = key + (torch.arange(blocks, device=device)[:, None] - 1) * window
    exists = (positions >= 0) & (positions < length)
    mask = near & exists[:, None, :]
    empty = ~mask.any(-1, keepdim=True)
    return (mask | (empty & (key == 0)))[:, None]
