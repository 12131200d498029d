"""The device side: the backbone's pass, then the heads."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from models_omnijev.heads import OptionHead, OrdinalHead, RowOutput
from models_omnijev.prompt import RowPrompt
from models_qwen3_5.backbone import Backbone
from models_qwen3_5.executor import BackboneExecutor
from models_qwen3_5.sequence import Readout, SequencePrompt


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
    def read_out(
        self, prompts: Sequence[SequencePrompt], readouts: Sequence[Readout]
    ) -> list[RowOutput]:
        question, option = torch.stack([readout.hidden for readout in readouts]).unbind(1)
        is_level = torch.tensor(
            [isinstance(prompt, RowPrompt) and prompt.is_level for prompt in prompts],
            device=question.device,
        )
        numbers = question.new_empty(len(prompts), 2)
        _fill(numbers, is_level, self.ordinal_head, question, option)
        _fill(numbers, ~is_level, self.option_head, question, option)
        logprobs = torch.cat([readout.logprobs for readout in readouts]).tolist()
        outputs = []
        start = 0
        for (own, shared), readout in zip(numbers.tolist(), readouts, strict=True):
            stop = start + len(readout.logprobs)
            outputs.append(RowOutput(own, shared, tuple(logprobs[start:stop])))
            start = stop
        return outputs


def _fill(
    numbers: Tensor, mask: Tensor, head: OptionHead | OrdinalHead, question: Tensor, option: Tensor
) -> None:
    if bool(mask.any()):
        numbers[mask] = head(question[mask], option[mask])
