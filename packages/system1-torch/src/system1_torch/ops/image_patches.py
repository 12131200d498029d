"""A decoded picture resized in fixed point and cut into the patches of a vision tower."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from torch import Tensor
from torch.nn import functional

# Fraction bits of a weight: the most that keep it in 16 bits, and never more than this.
_MAX_BITS = 22
_LARGEST_WEIGHT = 2**15


def image_patches(
    pixels: Tensor, rows: int, columns: int, patch_size: int, merge_size: int
) -> Tensor:
    """Antialiased bicubic resize to rows x columns, then patches, blocks of merge_size^2 together.

    Shapes: pixels [H, W, C] uint8 with C >= 3, channels from the fourth on are ignored; returns
    [rows * columns / patch_size^2, 3 * patch_size^2] uint8: blocks row-major, patches row-major
    inside, values by channel, row, column. Runs on the host, whatever the device of `pixels`.
    Raises ValueError unless both sides are multiples of patch_size * merge_size.
    """
    block = patch_size * merge_size
    if rows % block or columns % block:
        raise ValueError(
            f"image_patches: {rows} x {columns}, expected multiples of {block} on both sides"
        )
    planes = pixels.cpu().permute(2, 0, 1)
    if (rows, columns) != tuple(planes.shape[1:]):
        # On uint8 torch computes in fixed point, exactly as `fixed_point_taps` has it.
        planes = functional.interpolate(
            planes[None], (rows, columns), mode="bicubic", antialias=True, align_corners=False
        )[0]
    shape = (3, rows // block, merge_size, patch_size, columns // block, merge_size, patch_size)
    cut = planes[:3].reshape(shape).permute(1, 4, 2, 5, 0, 3, 6)
    return cut.reshape(-1, 3 * patch_size**2).to(pixels.device)


@lru_cache(256)
def fixed_point_taps(size: int, target: int) -> tuple[np.ndarray, np.ndarray, int]:
    """One axis of the resize: (weights [target, taps] int16, first [target] int32, bits).

    Value i of the result is clamp((2^(bits - 1) + sum_j weights[i, j] * line[first[i] + j]) >>
    bits, 0, 255); rows with fewer taps end in zero weights, which read nothing: stop at the end of
    the line. The axis of columns goes first, and an axis that keeps its size is left out.
    Source: what torch.nn.functional.interpolate does with uint8 on a CPU (Keys' cubic, a = -0.5).
    """
    scale = size / target
    stretch = max(scale, 1.0)
    centres = scale * (np.arange(target) + 0.5)
    first = np.maximum(0, (centres - 2 * stretch + 0.5).astype(np.int64))
    last = np.minimum(size, (centres + 2 * stretch + 0.5).astype(np.int64))
    places = np.arange(int((last - first).max()))
    exact = _cubic((places + first[:, None] - centres[:, None] + 0.5) * (1 / stretch))
    exact[places >= (last - first)[:, None]] = 0.0
    # Summed in order, one tap after the other, as the original does.
    exact /= np.cumsum(exact, axis=1)[:, -1:]
    bits, largest = 0, float(exact.max())
    while bits < _MAX_BITS and int(0.5 + largest * 2 ** (bits + 1)) < _LARGEST_WEIGHT:
        bits += 1
    scaled = exact * 2.0**bits
    weights = np.trunc(scaled + np.where(scaled < 0, -0.5, 0.5)).astype(np.int16)
    return weights, first.astype(np.int32), bits


def _cubic(x: np.ndarray) -> np.ndarray:
    x = np.abs(x)
    near = (1.5 * x - 2.5) * x * x + 1
    far = ((-0.5 * x + 2.5) * x - 4) * x + 2
    return np.where(x < 1, near, np.where(x < 2, far, 0.0))
