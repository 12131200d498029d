"""The vision tower: patches of images to rows that replace placeholder embeddings."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from models_qwen3_5.config import VisionConfig
from models_qwen3_5.images import PreparedImage, pixel_values

_EPS = 1e-6
_THETA = 10_000.0


class Linear(nn.Linear):
    """A linear layer without initialisation."""

    def reset_parameters(self) -> None:
        return


class PatchEmbed(nn.Module):
    """One product per patch; the weight keeps the shape of the convolution it is stored as."""

    def __init__(self, config: VisionConfig) -> None:
        super().__init__()
        side = config.patch_size
        shape = (config.hidden_size, 3, config.temporal_patch_size, side, side)
        self.weight = nn.Parameter(torch.empty(*shape))
        self.bias = nn.Parameter(torch.empty(config.hidden_size))

    def forward(self, pixels: Tensor) -> Tensor:
        return F.linear(pixels, self.weight.flatten(1), self.bias)


class Block(nn.Module):
    """Attention among the patches of one image, then an MLP."""

    def __init__(self, config: VisionConfig) -> None:
        super().__init__()
        size = config.hidden_size
        self.num_heads = config.num_heads
        self.norm1 = nn.LayerNorm(size, eps=_EPS)
        self.norm2 = nn.LayerNorm(size, eps=_EPS)
        self.attn = nn.ModuleDict({"qkv": Linear(size, 3 * size), "proj": Linear(size, size)})
        self.mlp = nn.ModuleDict(
            {
                "linear_fc1": Linear(size, config.intermediate_size),
                "linear_fc2": Linear(config.intermediate_size, size),
            }
        )

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, lengths: list[int]) -> Tensor:
        x = x + self._attend(self.norm1(x), cos, sin, lengths)
        hidden = F.gelu(self.mlp["linear_fc1"](self.norm2(x)), approximate="tanh")
        return x + self.mlp["linear_fc2"](hidden)

    def _attend(self, x: Tensor, cos: Tensor, sin: Tensor, lengths: list[int]) -> Tensor:
        q, k, v = self.attn["qkv"](x).unflatten(1, (3, self.num_heads, -1)).unbind(1)
        q, k = _rotate(q, cos, sin), _rotate(k, cos, sin)
        images = zip(*(part.split(lengths) for part in (q, k, v)), strict=True)
        return self.attn["proj"](torch.cat([_attention(*image) for image in images]).flatten(1))


class Merger(nn.Module):
    """Each block of patches to one row of the decoder's width."""

    def __init__(self, config: VisionConfig) -> None:
        super().__init__()
        self.width = config.hidden_size * config.spatial_merge_size**2
        self.norm = nn.LayerNorm(config.hidden_size, eps=_EPS)
        self.linear_fc1 = Linear(self.width, self.width)
        self.linear_fc2 = Linear(self.width, config.out_hidden_size)

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(x).view(-1, self.width)
        return self.linear_fc2(F.gelu(self.linear_fc1(x)))


class VisionTower(nn.Module):
    """The tower; attribute names are those of the checkpoint behind `model.visual.`."""

    def __init__(self, config: VisionConfig) -> None:
        super().__init__()
        self.config = config
        self.patch_embed = nn.ModuleDict({"proj": PatchEmbed(config)})
        self.pos_embed = nn.ParameterDict(
            {"weight": torch.empty(config.num_position_embeddings, config.hidden_size)}
        )
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.depth))
        self.merger = Merger(config)

    def forward(self, images: Sequence[PreparedImage]) -> Tensor:
        """Rows [sum of num_tokens, D] of the images, one after the other."""
        table = self.pos_embed["weight"]
        patches = torch.cat([image.patches for image in images]).to(table.device)
        pixels = pixel_values(patches, self.config.temporal_patch_size).to(table.dtype)
        grids = [image.grid for image in images]
        x = self.patch_embed["proj"](pixels) + self.positions(grids)
        cos, sin = self.rotary(grids)
        lengths = [rows * columns for rows, columns in grids]
        for block in self.blocks:
            x = block(x, cos, sin, lengths)
        return self.merger(x)

    def positions(self, grids: Sequence[tuple[int, int]]) -> Tensor:
        """The learned position table, resampled to each grid: [P, hidden] in the model's dtype."""
        table = self.pos_embed["weight"]
        side = round(self.config.num_position_embeddings**0.5)
        merge = self.config.spatial_merge_size
        taps = [position_taps(grid, side, merge) for grid in grids]
        indices = torch.cat([index for index, _ in taps]).to(table.device)
        weights = torch.cat([weight for _, weight in taps]).to(table.device)
        rows = table[indices].float() * weights[..., None]
        return (rows[:, 0] + rows[:, 1] + rows[:, 2] + rows[:, 3]).to(table.dtype)

    def rotary(self, grids: Sequence[tuple[int, int]]) -> tuple[Tensor, Tensor]:
        """Cosines and sines of row and column: [P, head dim] fp32."""
        quarter = self.config.hidden_size // self.config.num_heads // 4
        exponents = torch.arange(0, 2 * quarter, 2, dtype=torch.float32) / (2 * quarter)
        frequencies = 1.0 / _THETA**exponents
        merge = self.config.spatial_merge_size
        places = torch.cat([torch.stack(_places(grid, merge), dim=1) for grid in grids])
        angles = (places[..., None].float() * frequencies).flatten(1)
        angles = torch.cat([angles, angles], dim=1).to(self.pos_embed["weight"].device)
        return angles.cos(), angles.sin()


def _places(grid: tuple[int, int], merge: int) -> tuple[Tensor, Tensor]:
    """Row and column of each patch in the tower's order: block by block, row-major inside."""
    rows, columns = torch.meshgrid(*(torch.arange(side) for side in grid), indexing="ij")
    shape = (grid[0] // merge, merge, grid[1] // merge, merge)
    row, column = (place.reshape(shape).permute(0, 2, 1, 3).flatten() for place in (rows, columns))
    return row, column


def position_taps(grid: tuple[int, int], side: int, merge: int) -> tuple[Tensor, Tensor]:
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


def _rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary over the whole head in fp32: x [P, H, D], cos and sin [P, D]."""
    x32 = x.float()
    first, second = x32.chunk(2, dim=-1)
    swapped = torch.cat([-second, first], dim=-1)
    return (x32 * cos[:, None] + swapped * sin[:, None]).to(x.dtype)


def _attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    q, k, v = (part.transpose(0, 1)[None] for part in (q, k, v))
    return F.scaled_dot_product_attention(q, k, v)[0].transpose(0, 1)
