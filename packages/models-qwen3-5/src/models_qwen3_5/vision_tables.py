"""What the tower needs of a grid and of no pixel: positions and rotary angles, made once."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from models_qwen3_5.config import VisionConfig

Grid = tuple[int, int]
_THETA = 10_000.0
# Of all kept tables together: 150 MB in bfloat16 at a width of 1,024.
_MAX_PATCHES = 65_536


@dataclass(frozen=True, slots=True)
class GridTables:
    """positions [P, D] in the model's dtype; cos, sin [P, head dim / 2] fp32; the tower's order."""

    positions: Tensor
    cos: Tensor
    sin: Tensor

    def __len__(self) -> int:
        return self.positions.shape[0]


class TableCache:
    """Tables by grid on the device, the least recently used given up above a bound."""

    def __init__(self, config: VisionConfig, max_patches: int = _MAX_PATCHES) -> None:
        self._config = config
        self._max_patches = max_patches
        self._tables: OrderedDict[Grid, GridTables] = OrderedDict()

    def tables(self, grids: Sequence[Grid], weight: Tensor) -> GridTables:
        """Those of packed images; `weight` is the learned table of positions [side^2, D]."""
        parts = [self._of(grid, weight) for grid in grids]
        if len(parts) == 1:
            return parts[0]
        return GridTables(
            torch.cat([part.positions for part in parts]),
            torch.cat([part.cos for part in parts]),
            torch.cat([part.sin for part in parts]),
        )

    def _of(self, grid: Grid, weight: Tensor) -> GridTables:
        found = self._tables.pop(grid, None)
        if found is None or found.positions.device != weight.device:
            # Kept for passes in either mode.
            with torch.inference_mode(False), torch.no_grad():
                found = make_tables(grid, weight, self._config)
        self._tables[grid] = found
        while len(self._tables) > 1 and sum(map(len, self._tables.values())) > self._max_patches:
            self._tables.popitem(last=False)
        return found

    def __contains__(self, grid: Grid) -> bool:
        return grid in self._tables


def make_tables(grid: Grid, weight: Tensor, config: VisionConfig) -> GridTables:
    """The learned positions resampled to the grid, and the angles of its rows and columns."""
    side = round(config.num_position_embeddings**0.5)
    merge = config.spatial_merge_size
    indices, weights = (part.to(weight.device) for part in position_taps(grid, side, merge))
    rows = weight[indices].float() * weights[..., None]
    positions = (rows[:, 0] + rows[:, 1] + rows[:, 2] + rows[:, 3]).to(weight.dtype)
    angles = rotary_angles(grid, config).to(weight.device)
    return GridTables(positions, angles.cos(), angles.sin())


def rotary_angles(grid: Grid, config: VisionConfig) -> Tensor:
    """Angles of row and column: [P, head dim / 2] fp32, for both halves of a head."""
    quarter = config.hidden_size // config.num_heads // 4
    exponents = torch.arange(0, 2 * quarter, 2, dtype=torch.float32) / (2 * quarter)
    frequencies = 1.0 / _THETA**exponents
    places = torch.stack(_places(grid, config.spatial_merge_size), dim=1)
    return (places[..., None].float() * frequencies).flatten(1)


def _places(grid: Grid, merge: int) -> tuple[Tensor, Tensor]:
    """Row and column of each patch in the tower's order: block by block, row-major inside."""
    rows, columns = torch.meshgrid(*(torch.arange(side) for side in grid), indexing="ij")
    shape = (grid[0] // merge, merge, grid[1] // merge, merge)
    row, column = (place.reshape(shape).permute(0, 2, 1, 3).flatten() for place in (rows, columns))
    return row, column


def position_taps(grid: Grid, side: int, merge: int) -> tuple[Tensor, Tensor]:
    """Bilinear taps into a side x side table with aligned corners.

    Returns indices [P, 4] and weights [P, 4] fp32, in the tower's order.
    """
    corners, fractions = [], []
    for place, size in zip(_places(grid, merge), grid, strict=True):
        # Multiplied before it is divided: the other order differs in the last bit.
        source = place.float() * (side - 1) / max(size - 1, 1)
        low = source.floor()
        fractions.append(source - low)
        corners.append((low.long(), (low.long() + 1).clamp(max=side - 1)))
    (r0, r1), (c0, c1) = corners
    fr, fc = fractions
    indices = [r0 * side + c0, r0 * side + c1, r1 * side + c0, r1 * side + c1]
    weights = [(1 - fr) * (1 - fc), (1 - fr) * fc, fr * (1 - fc), fr * fc]
    return torch.stack(indices, dim=1), torch.stack(weights, dim=1)
