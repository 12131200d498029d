"""Resize and patch layout on CUDA, byte for byte what the host makes."""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor

from system1_cuda.coverage import is_aligned
from system1_torch.ops import image_patches as reference
from system1_torch.ops.image_patches import fixed_point_taps

_CHANNELS = 4
# Lines are the grid's second dimension.
_MAX_SIDE = 65_535
# Fraction bits of the one tap of a side that keeps its size: 2^14 is exact in 16 bits.
_KEPT_BITS = 14
Taps = tuple[Tensor, Tensor, int]


def image_patches(
    pixels: Tensor, rows: int, columns: int, patch_size: int, merge_size: int
) -> Tensor:
    """As the reference, in two kernels; pixels are [H, W, 4]."""
    if not _covers(pixels, rows, columns, patch_size, merge_size):
        return reference.image_patches(pixels, rows, columns, patch_size, merge_size)
    height, width, _ = pixels.shape
    across = None if width == columns else _taps(width, columns, pixels.device)
    weights, first, bits = across or (None, None, 0)
    return torch.ops.system1.image_patches.default(
        pixels, weights, first, bits, *_taps(height, rows, pixels.device), patch_size, merge_size
    )


@lru_cache(256)
def _taps(size: int, target: int, device: torch.device) -> Taps:
    """Weights [taps, target] int16 and first taps [target] int32 on the device, and the bits."""
    with torch.inference_mode(False):
        if size == target:
            kept = torch.full((1, target), 1 << _KEPT_BITS, dtype=torch.int16, device=device)
            return kept, torch.arange(target, dtype=torch.int32, device=device), _KEPT_BITS
        weights, first, bits = fixed_point_taps(size, target)
        table = torch.from_numpy(weights).t().contiguous().to(device)
        return table, torch.from_numpy(first).to(device), bits


def _covers(pixels: Tensor, rows: int, columns: int, patch_size: int, merge_size: int) -> bool:
    block = patch_size * merge_size
    return (
        pixels.is_cuda
        and pixels.dtype == torch.uint8
        and pixels.dim() == 3
        and pixels.shape[2] == _CHANNELS
        and pixels.is_contiguous()
        and is_aligned(pixels)
        and patch_size % 4 == 0
        and 0 < rows <= _MAX_SIDE
        and columns > 0
        and rows % block == 0 == columns % block
        and 0 < pixels.shape[0] <= _MAX_SIDE
        and pixels.shape[1] > 0
    )
