"""Three-axis positions and their rotary tables."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from models_qwen3_5.config import TextConfig
from models_qwen3_5.sequence import ImageSpan


def make_positions(num_tokens: int, spans: Sequence[ImageSpan]) -> np.ndarray:
    """Positions (time, height, width) of every token of one sequence: [3, T] int64.

    Text counts on along all three axes. An image at counter p has time p, and row and column
    count from p over its merged grid; the counter then moves on by the longer side.
    """
    positions = np.empty((3, num_tokens), dtype=np.int64)
    counter, token = 0, 0
    for span in spans:
        text = span.start - token
        positions[:, token : span.start] = np.arange(counter, counter + text)
        counter += text
        rows, columns = span.image.merged_grid
        positions[0, span.start : span.stop] = counter
        positions[1, span.start : span.stop] = counter + np.repeat(np.arange(rows), columns)
        positions[2, span.start : span.stop] = counter + np.tile(np.arange(columns), rows)
        counter += max(rows, columns)
        token = span.stop
    positions[:, token:] = np.arange(counter, counter + num_tokens - token)
    return positions


class RotaryTables:
    """Cosines and sines of the decoder's rotary dimensions, from positions."""

    def __init__(self, config: TextConfig, device: torch.device | str = "cpu") -> None:
        # Power and quotient in fp32, in this order: other orders drift with the position.
        exponents = torch.arange(0, config.rotary_dim, 2, dtype=torch.float32) / config.rotary_dim
        self.inv_freq = (1.0 / config.rope_theta**exponents).to(device)
        self.axes = _axes(config.mrope_section).to(device)

    def tables(self, positions: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """positions [3, T] to cos and sin [T, R], the second half repeating the first."""
        angles = positions[self.axes].T.float() * self.inv_freq
        angles = torch.cat([angles, angles], dim=1)
        return angles.cos().to(dtype), angles.sin().to(dtype)


def _axes(section: tuple[int, int, int]) -> Tensor:
    """The axis of each frequency slot: time, with height and width interleaved every third."""
    slots = range(sum(section))
    axes = [
        next((axis for axis in (1, 2) if slot % 3 == axis and slot < 3 * section[axis]), 0)
        for slot in slots
    ]
    return torch.tensor(axes)
