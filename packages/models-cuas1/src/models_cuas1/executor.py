"""The device side: one network for each modality, and letters read from the last position."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from models_cuas1.prompt import MULTIMODAL
from models_qwen3_5.backbone import Backbone, ImageSpan, PreparedImage, Reads, SequencePrompt
from models_qwen3_5.executor import BackboneExecutor
from system1_core.executor import Executor
from system1_core.processor import Prompt

# A white picture of 224 x 224, which is enlarged to 256 x 256.
_GRID = (16, 16)


class _Part(BackboneExecutor):
    """One modality's network."""

    # A screen of 1280 x 800.
    expected_grids = (((50, 80),),)


class CuaExecutor(Executor):
    """A batch is of one modality: its prompts' `batch_key` names the network that runs it."""

    max_batch_prompts = BackboneExecutor.max_batch_prompts
    max_batch_tokens = BackboneExecutor.max_batch_tokens

    def __init__(
        self, backbones: Mapping[str, Backbone], *, is_deterministic: bool = False
    ) -> None:
        self._parts = {
            modality: _Part(backbone, is_deterministic=is_deterministic)
            for modality, backbone in backbones.items()
        }
        if is_deterministic:
            self.max_batch_prompts = 1

    def execute(self, prompts: Sequence[Any]) -> Sequence[Any]:
        return self._part(prompts[0]).execute(prompts)

    def cost(self, batch: Sequence[Prompt], prompt: Prompt) -> int:
        return self._part(prompt).cost(batch, prompt)

    def warmup(self) -> None:
        for modality, part in self._parts.items():
            part.warmup()
            if modality == MULTIMODAL:
                part.execute([_white_screen(part.backbone)])

    def idle(self) -> bool:
        return any(part.idle() for part in self._parts.values())

    def close(self) -> None:
        for part in self._parts.values():
            part.close()

    def _part(self, prompt: Prompt) -> BackboneExecutor:
        return self._parts[str(prompt.batch_key)]


def _white_screen(backbone: Backbone) -> SequencePrompt:
    vision, token = backbone.config.vision, backbone.config.image_token_id
    assert vision is not None
    assert token is not None
    pixels = torch.full((_GRID[0] * _GRID[1], 3 * vision.patch_size**2), 255, dtype=torch.uint8)
    image = PreparedImage(pixels, _GRID, vision.spatial_merge_size)
    token_ids = [token] * image.num_tokens + [0]
    reads = Reads(logits=(len(token_ids) - 1,), logit_ids=(0,))
    return SequencePrompt(token_ids, reads=reads, images=(ImageSpan(0, image),))
