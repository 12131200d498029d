"""The tower as an executor runs it: by groups of images, and in CUDA graphs by their grids."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from models_qwen3_5.images import PreparedImage
from models_qwen3_5.ops import Ops
from models_qwen3_5.vision import VisionTower
from models_qwen3_5.vision_tables import Grid, GridTables
from system1_torch.graphs import GraphCache

Grids = tuple[Grid, ...]
# Bounds the activations of one pass; one image may exceed it alone.
MAX_PATCHES = 16_384
# 4B needs about 0.5 GiB for the largest group, which all graphs share, and little for each.
GRAPH_BYTES = 2 * 2**30
# Grids once seen that are remembered, so that clients with ever other sizes cost no memory.
_MAX_SEEN = 256


class VisionGraphs:
    """Runs a tower; a group of grids seen twice gets a graph when `capture_next` is called.

    One thread owns it. No pass waits for a capture: without a graph it runs eagerly. Once
    `is_deterministic` is set every image runs alone and without graphs, whose attention sums in
    another order.
    """

    def __init__(self, tower: VisionTower, ops: Ops, *, budget_bytes: int = GRAPH_BYTES) -> None:
        self.tower = tower
        self.ops = ops
        self.is_deterministic = False
        self._device = tower.pos_embed["weight"].device
        self._graphs = GraphCache[Grids](self._run, device=self._device, budget_bytes=budget_bytes)
        # A graph reads its tables where they were: they stay as long as it does.
        self._tables: dict[Grids, GridTables] = {}
        self._seen: OrderedDict[Grids, int] = OrderedDict()
        self._wishes: dict[Grids, None] = {}

    @torch.inference_mode()
    def features(self, images: Sequence[PreparedImage]) -> list[Tensor]:
        """Rows [num_tokens, D] of each image in the model's dtype, each distinct one run once."""
        # By grid, so that the same sizes in another order are the same graph.
        distinct = sorted(
            {image.digest: image for image in images}.values(), key=lambda image: image.grid
        )
        found: dict[bytes, Tensor] = {}
        groups = (
            [[image] for image in distinct] if self.is_deterministic else patch_groups(distinct)
        )
        for group in groups:
            rows = self._rows(group).split([image.num_tokens for image in group])
            found |= {image.digest: part for image, part in zip(group, rows, strict=True)}
        return [found[image.digest] for image in images]

    def wish(self, grids: Sequence[Grid]) -> None:
        """Have the next capture be of these, the grids of images that come in one batch."""
        if self._device.type == "cuda" and not self.is_deterministic:
            self._wishes[tuple(sorted(grids))] = None

    @torch.inference_mode()
    def capture_next(self) -> bool:
        """Capture one of the groups that were wished for; False where there was nothing to do."""
        if not self._wishes:
            return False
        grids = next(iter(self._wishes))
        del self._wishes[grids]
        self._tables[grids] = self.tower.tables(grids)
        size = 3 * self.tower.config.patch_size**2
        patches = torch.zeros(len(self._tables[grids]), size, dtype=torch.uint8)
        if not self._graphs.capture(grids, {"patches": patches}):
            # Over the budget: what is wished for now would be refused as well.
            del self._tables[grids]
            self._wishes.clear()
            return False
        return True

    def close(self) -> None:
        """Free every graph."""
        self._graphs.close()
        self._tables.clear()

    def _rows(self, group: Sequence[PreparedImage]) -> Tensor:
        grids = tuple(image.grid for image in group)
        patches = self.tower.patches(group, self.ops)
        if grids in self._graphs:
            # The next replay writes over its rows, and they are read after the last group.
            return self._graphs(grids, {"patches": patches})["rows"].clone()
        self._count(grids)
        return self.tower.features(patches, self.tower.tables(grids), grids, self.ops)

    def _run(self, grids: Grids, inputs: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        rows = self.tower.features(
            inputs["patches"], self._tables[grids], grids, self.ops, is_recurring=True
        )
        return {"rows": rows}

    def _count(self, grids: Grids) -> None:
        """A group that came before is worth a graph."""
        count = self._seen.pop(grids, 0) + 1
        self._seen[grids] = count
        if count > 1:
            self.wish(grids)
        if len(self._seen) > _MAX_SEEN:
            old, _ = self._seen.popitem(last=False)
            self._wishes.pop(old, None)


def patch_groups(images: Sequence[PreparedImage]) -> list[list[PreparedImage]]:
    """Images in order, in groups of bounded size."""
    groups: list[list[PreparedImage]] = []
    room = 0
    for image in images:
        if not groups or image.num_patches > room:
            groups.append([])
            room = MAX_PATCHES
        groups[-1].append(image)
        room -= image.num_patches
    return groups
