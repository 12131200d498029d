"""The device side that every family on this backbone shares."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

import torch

from models_qwen3_5.backbone import Backbone
from models_qwen3_5.checkpoint import Parts, load_backbone
from models_qwen3_5.graphs import WARMUP_S
from models_qwen3_5.ops import ops_of
from models_qwen3_5.planner import Planner
from models_qwen3_5.readouts import Readouts
from models_qwen3_5.sequence import Reads, SequencePrompt, common_prefix
from models_qwen3_5.vision_tables import Grid
from system1_core.errors import ConfigError
from system1_core.executor import Executor
from system1_core.family import Load
from system1_core.processor import Prompt
from system1_torch.device import set_cpu_threads, torch_device
from system1_torch.dtype import FP8, compute_dtype

_log = logging.getLogger(__name__)
# Ada and Hopper.
_FP8_CAPABILITY = (8, 9)


class BackboneExecutor(Executor):
    """One packed pass for each batch; families override `read_out` where heads follow."""

    max_batch_prompts = 256
    # The longest prompt, and room for the tails of others that share nearly all of it.
    max_batch_tokens = 20_480
    # Grids of images that come together often: the tower gets a graph for each of these groups.
    expected_grids: Sequence[Sequence[Grid]] = ()

    def __init__(self, backbone: Backbone, *, is_deterministic: bool = False) -> None:
        self.backbone = backbone
        if is_deterministic:
            # Products over other row counts may sum in another order: alone, bits are equal.
            self.max_batch_prompts = 1
            # Graphs pad, and padded products may sum in another order too.
            backbone.graphs = None
            if backbone.vision_graphs is not None:
                backbone.vision_graphs.is_deterministic = True

    @torch.inference_mode()
    def execute(self, prompts: Sequence[Any]) -> Sequence[Any]:
        return self.read_out(prompts, self.backbone.read(prompts))

    def read_out(self, prompts: Sequence[SequencePrompt], readouts: Readouts) -> Sequence[Any]:
        """What leaves the device for each prompt; here the logits of its first read, as floats.

        Each copy to the host waits for the device: one is enough for all prompts.
        """
        return [logits[0] for logits in readouts.logits_lists()]

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
        if self.backbone.vision_graphs is not None:
            for grids in self.expected_grids:
                self.backbone.vision_graphs.wish(grids)
            while self.backbone.vision_graphs.capture_next():
                pass
        started = perf_counter()
        if count := self.backbone.capture_graphs(WARMUP_S):
            _log.info("%d CUDA graphs in %.1f s", count, perf_counter() - started)

    def idle(self) -> bool:
        """Capture one more graph while nobody waits."""
        return self.backbone.capture_next()

    def close(self) -> None:
        self.backbone.close()
        del self.backbone


def quantise_for(load: Load, backbone: Backbone) -> None:
    """Turn the decoder's projections into FP8 where `--dtype fp8` asks for it, one at a time.

    For families that open the backbone with `quantised` False: what is quantised cannot be
    loaded into. Raises ConfigError where the device has no FP8 products.
    """
    if _wants_fp8(load, backbone.device):
        for projection in backbone.text.projections():
            projection.quantise()


def _wants_fp8(load: Load, device: torch.device) -> bool:
    if load.dtype != FP8:
        return False
    if device.type == "cuda" and torch.cuda.get_device_capability(device) < _FP8_CAPABILITY:
        raise ConfigError(
            f"--dtype fp8: {torch.cuda.get_device_name(device)} has no FP8 products; "
            "use --dtype bfloat16"
        )
    _log.info("projections in FP8, a scale for each row: answers differ from bfloat16's")
    return True


def open_backbone(
    load: Load, folder: Path, parts: Parts | None = None, *, quantised: bool = True
) -> Backbone:
    """The backbone of a folder on the device, in the dtype and with the ops that `load` names.

    For `--dtype fp8` each layer is quantised before the next is loaded; `quantised` False leaves
    that to the caller, who has more to load first and calls `quantise_for` then.
    """
    device = torch_device(load.backend.device)
    if device.type == "cpu":
        set_cpu_threads()
    return load_backbone(
        folder,
        parts,
        device=device,
        dtype=compute_dtype(load.dtype),
        ops=ops_of(load.backend),
        planner=Planner(cut_multiple=64) if load.deterministic else Planner(),
        quantised=quantised and _wants_fp8(load, device),
    )
