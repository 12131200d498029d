"""The device side: the backbone's pass, then the heads."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from models_omnijev.heads import OptionHead, OrdinalHead, RowOutput
from models_omnijev.prompt import RowPrompt
from models_qwen3_5.backbone import Backbone
from models_qwen3_5.executor import BackboneExecutor
from models_qwen3_5.readouts import Readouts
from models_qwen3_5.sequence import SequencePrompt


class OmnijevExecutor(BackboneExecutor):
    """A row's output is what its head makes of it; the question is put together on the host."""

    # A screen of 16 to 9, shrunk to the pixels that the model takes: alone and in a batch.
    expected_grids = tuple(((36, 64),) * count for count in range(1, 5))

    def __init__(
        self,
        backbone: Backbone,
        option_head: OptionHead,
        ordinal_head: OrdinalHead,
        *,
        is_deterministic: bool = False,
    ) -> None:
        super().__init__(backbone, is_deterministic=is_deterministic)
        self.option_head = option_head
        self.ordinal_head = ordinal_head

    @torch.inference_mode()
    def read_out(self, prompts: Sequence[SequencePrompt], readouts: Readouts) -> list[RowOutput]:
        question, option = readouts.hidden.view(len(prompts), 2, -1).unbind(1)
        is_level = [isinstance(prompt, RowPrompt) and prompt.is_level for prompt in prompts]
        heads = {kind: self.ordinal_head if kind else self.option_head for kind in set(is_level)}
        # Of mixed rows each head sees all: that takes less time than to sort rows on the device.
        parts = [head(question, option).flatten() for head in heads.values()]
        # The one copy to the host, for which the device must be waited for.
        every = torch.cat([*parts, readouts.logprobs]).tolist()
        numbers = {kind: at * 2 * len(prompts) for at, kind in enumerate(heads)}
        outputs = []
        start = 2 * len(prompts) * len(heads)
        for index, (prompt, kind) in enumerate(zip(prompts, is_level, strict=True)):
            stop = start + len(prompt.reads.logprobs)
            own, shared = every[numbers[kind] + 2 * index : numbers[kind] + 2 * index + 2]
            outputs.append(RowOutput(own, shared, tuple(every[start:stop])))
            start = stop
        return outputs
