"""The device side that every family on this backbone shares."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from models_qwen3_5.backbone import Backbone
from models_qwen3_5.checkpoint import Parts, load_backbone
from models_qwen3_5.ops import ops_of
from models_qwen3_5.planner import Planner
from models_qwen3_5.sequence import Readout, Reads, SequencePrompt, common_prefix
from system1_core.executor import Executor
from system1_core.family import Load
from system1_core.processor import Prompt
from system1_torch.device import set_cpu_threads, torch_device
from system1_torch.dtype import torch_dtype


class BackboneExecutor(Executor):
    """One packed pass for each batch; families override `read_out` where heads follow."""

    max_batch_prompts = 256
    # The longest prompt, and room for the tails of others that share nearly all of it.
    max_batch_tokens = 20_480

    def __init__(self, backbone: Backbone, *, is_deterministic: bool = False) -> None:
        self.backbone = backbone
        if is_deterministic:
            # Products over other row counts may sum in another order: alone, bits are equal.
            self.max_batch_prompts = 1

    def execute(self, prompts: Sequence[Any]) -> Sequence[Any]:
        return self.read_out(prompts, self.backbone.forward(prompts))

    def read_out(
        self, prompts: Sequence[SequencePrompt], readouts: Sequence[Readout]
    ) -> Sequence[Any]:
        """What leaves the device for each prompt; here the logits of its first read, as floats."""
        return [readout.logits[0].tolist() for readout in readouts]

    def cost(self, batch: Sequence[Prompt], prompt: Prompt) -> int:
        """Tokens behind what the prompt shares with the one before it.

        Prompts of one request are adjacent, so this finds nearly all that the planner will.
        """
        if not batch or not isinstance(prompt, SequencePrompt):
            return prompt.num_tokens
        before = batch[-1]
        assert isinstance(before, SequencePrompt)
        shared = common_prefix(before.key, prompt.key)
        saved = shared if shared >= self.backbone.planner.min_saved else 0
        return max(1, prompt.num_tokens - saved)

    def warmup(self) -> None:
        """A short pass, a tree of two levels and one of many chunks."""
        reads = Reads(hidden=(0,))
        stem = [1] * 64
        tree = [SequencePrompt([*stem, token], reads=reads) for token in range(3)]
        for batch in (tree[:1], tree, [SequencePrompt([1] * 256, reads=reads)]):
            self.backbone.forward(batch)

    def close(self) -> None:
        del self.backbone


def open_backbone(load: Load, folder: Path, parts: Parts | None = None) -> Backbone:
    """The backbone of a folder on the device, in the dtype and with the ops that `load` names."""
    device = torch_device(load.backend.device)
    if device.type == "cpu":
        set_cpu_threads()
    return load_backbone(
        folder,
        parts,
        device=device,
        dtype=torch_dtype(load.dtype),
        ops=ops_of(load.backend),
        planner=Planner(cut_multiple=64) if load.deterministic else Planner(),
    )
