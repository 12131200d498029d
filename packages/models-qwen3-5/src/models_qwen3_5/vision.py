"""The vision tower: patches of images to rows that replace placeholder embeddings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from models_qwen3_5.config import VisionConfig
from models_qwen3_5.images import PreparedImage, pixel_values
from models_qwen3_5.ops import Ops
from models_qwen3_5.vision_tables import Grid, GridTables, TableCache

_EPS = 1e-6


class Linear(nn.Linear):
    """A linear layer without initialisation."""

    def reset_parameters(self) -> None:
        return


@dataclass(frozen=True, slots=True)
class Pass:
    """What the blocks of one pass share: ops, rotary tables, patches of each image."""

    ops: Ops
    cos: Tensor
    sin: Tensor
    lengths: tuple[int, ...]
    is_recurring: bool


class PatchEmbed(nn.Module):
    """One product per patch; the weight keeps the shape of the convolution it is stored as."""

    def __init__(self, config: VisionConfig) -> None:
        super().__init__()
        side = config.patch_size
        shape = (config.hidden_size, 3, config.temporal_patch_size, side, side)
        self.weight = nn.Parameter(torch.empty(*shape))
        self.bias = nn.Parameter(torch.empty(config.hidden_size))

    def forward(self, pixels: Tensor, ops: Ops) -> Tensor:
        return ops.linear(pixels, self.weight.flatten(1), self.bias)


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

    def forward(
        self, normed: Tensor, x: Tensor, following: nn.LayerNorm, step: Pass
    ) -> tuple[Tensor, Tensor]:
        """From norm1's rows and the residual stream to those of the norm that follows."""
        ops = step.ops
        mixed = self._attend(normed, step)
        normed, x = ops.residual_layer_norm(mixed, x, self.norm2.weight, self.norm2.bias, _EPS)
        first, second = self.mlp["linear_fc1"], self.mlp["linear_fc2"]
        hidden = ops.linear_gelu(normed, first.weight, first.bias)
        hidden = ops.linear(hidden, second.weight, second.bias)
        return ops.residual_layer_norm(hidden, x, following.weight, following.bias, _EPS)

    def _attend(self, normed: Tensor, step: Pass) -> Tensor:
        qkv, proj, ops = self.attn["qkv"], self.attn["proj"], step.ops
        heads = ops.linear(normed, qkv.weight, qkv.bias).unflatten(1, (3 * self.num_heads, -1))
        turned = ops.rotary(heads[:, : 2 * self.num_heads], step.cos, step.sin)
        q, k = turned.split(self.num_heads, dim=1)
        v = heads[:, 2 * self.num_heads :]
        mixed = ops.image_attention(q, k, v, step.lengths, is_recurring=step.is_recurring)
        return ops.linear(mixed.flatten(1), proj.weight, proj.bias)


class Merger(nn.Module):
    """Each block of patches, behind `norm`, to one row of the decoder's width."""

    def __init__(self, config: VisionConfig) -> None:
        super().__init__()
        self.width = config.hidden_size * config.spatial_merge_size**2
        self.norm = nn.LayerNorm(config.hidden_size, eps=_EPS)
        self.linear_fc1 = Linear(self.width, self.width)
        self.linear_fc2 = Linear(self.width, config.out_hidden_size)

    def forward(self, normed: Tensor, ops: Ops) -> Tensor:
        first, second = self.linear_fc1, self.linear_fc2
        # The exact form, unlike the blocks'.
        hidden = F.gelu(ops.linear(normed.view(-1, self.width), first.weight, first.bias))
        return ops.linear(hidden, second.weight, second.bias)


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
        self.cache = TableCache(config)

    def forward(self, images: Sequence[PreparedImage], ops: Ops | None = None) -> Tensor:
        """Rows [sum of num_tokens, D] of the images, one after the other."""
        ops = ops or Ops()
        grids = [image.grid for image in images]
        return self.features(self.patches(images, ops), self.tables(grids), grids, ops)

    def patches(self, images: Sequence[PreparedImage], ops: Ops) -> Tensor:
        """Patches [P, 3 * patch^2] uint8 of the images on the device, resized there if need be."""
        device, size = self.pos_embed["weight"].device, self.config.patch_size
        parts = []
        for image in images:
            if image.patches is not None:
                parts.append(image.patches.to(device, non_blocking=True))
                continue
            assert image.pixels is not None
            pixels = image.pixels.to(device, non_blocking=True)
            rows, columns = (side * size for side in image.grid)
            parts.append(ops.image_patches(pixels, rows, columns, size, image.merge_size))
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def tables(self, grids: Sequence[Grid]) -> GridTables:
        """Positions and rotary tables of these grids; kept on the device for the next time."""
        return self.cache.tables(grids, self.pos_embed["weight"])

    def features(
        self,
        patches: Tensor,
        tables: GridTables,
        grids: Sequence[Grid],
        ops: Ops,
        *,
        is_recurring: bool = False,
    ) -> Tensor:
        """As `forward`, from patches and tables on the device; waits for nothing."""
        dtype = tables.positions.dtype
        pixels = pixel_values(patches, self.config.temporal_patch_size, dtype)
        x = self.patch_embed["proj"](pixels, ops) + tables.positions
        lengths = tuple(rows * columns for rows, columns in grids)
        step = Pass(ops, tables.cos, tables.sin, lengths, is_recurring)
        norms = [block.norm1 for block in self.blocks] + [self.merger.norm]
        normed = ops.layer_norm(x, norms[0].weight, norms[0].bias, _EPS)
        for block, following in zip(self.blocks, norms[1:], strict=True):
            normed, x = block(normed, x, following, step)
        return self.merger(normed, ops)
