"""The device side: one packed pass over all candidates, then the head."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from models_openjev.checkpoint import MERGED_FORMAT, Source, read_json
from models_openjev.head import Head, load_head
from models_openjev.identity import adapted_modules, check_network
from models_qwen3_5.backbone import Readouts, SequencePrompt
from models_qwen3_5.checkpoint import Parts, load_adapter, text_prefix
from models_qwen3_5.config import TextConfig, read_config
from models_qwen3_5.executor import BackboneExecutor, open_backbone
from models_qwen3_5.export import is_export, read_export
from system1_core.errors import CheckpointError
from system1_core.family import Load
from system1_torch.dtype import compute_dtype
from system1_torch.lora import LoraAdapter
from system1_torch.safetensors_file import Safetensors

TARGETS = ("q_proj", "k_proj", "v_proj", "o_proj", "in_proj_qkv", "out_proj")
_SCALE = 2.0


class OpenJevExecutor(BackboneExecutor):
    """Candidates in, one score each out."""

    def __init__(self, backbone: Any, head: Head, *, is_deterministic: bool = False) -> None:
        super().__init__(backbone, is_deterministic=is_deterministic)
        self.head = head

    def read_out(self, prompts: Sequence[SequencePrompt], readouts: Readouts) -> Sequence[float]:
        # In the order of the pass: putting them in the prompts' order is cheaper on the host.
        scores = self.head.scores(readouts.rows)
        return [scores[place] for places in readouts.places for place in places]


def load_executor(load: Load, source: Source) -> OpenJevExecutor:
    """The merged backbone on the device, with its head.

    Raises CheckpointError for weights, an adapter or a head that do not fit together.
    """
    config = read_config(source.base).text
    check_network(config, source.published, source.base / "config.json")
    if source.is_merged:
        _check_merged(source)
    head = load_head(source, config.hidden_size, load.backend.device)
    parts = make_parts(source, config, compute_dtype(load.dtype))
    backbone = open_backbone(load, source.base, parts)
    return OpenJevExecutor(backbone, head, is_deterministic=load.deterministic)


def make_parts(source: Source, config: TextConfig, dtype: torch.dtype) -> Parts:
    """What to load: the decoder alone, the package's adapter merged into it.

    In bfloat16 the delta is rounded before it is added, as the original's exporter does: a
    package and its merged export are then the same model bit for bit.
    """
    if source.is_merged:
        return Parts(vision=False, head=False)
    delta = torch.bfloat16 if dtype == torch.bfloat16 else torch.float32
    adapter = _load_adapter(source, config)
    return Parts(vision=False, head=False, adapter=adapter, delta_dtype=delta)


def _load_adapter(source: Source, config: TextConfig) -> LoraAdapter:
    """The package's adapter, checked against its model.json. Raises CheckpointError."""
    prefix = text_prefix(Safetensors.open(source.base))
    adapter = load_adapter(source.folder / "adapter", prefix)
    adapter.check_modules(adapted_modules(config), TARGETS)
    rank = read_json(adapter.folder / "adapter_config.json")["r"]
    if rank != source.lora_rank or adapter.scale != _SCALE:
        raise CheckpointError(
            f"{adapter.folder}: rank {rank} and scale {adapter.scale:g}, expected rank "
            f"{source.lora_rank} by model.json and scale {_SCALE:g}; fetch the package again"
        )
    return adapter


def _check_merged(source: Source) -> None:
    """A merged export holds bfloat16 only; one of ours is proved by its hashes as well."""
    if is_export(source.base):
        read_export(source.base, MERGED_FORMAT)
    weights = Safetensors.open(source.base)
    for name, entry in weights.items():
        if entry.dtype != torch.bfloat16:
            raise CheckpointError(
                f"{entry.file}: tensor {name!r}: found {entry.dtype}, expected torch.bfloat16 in a "
                "merged export; export again"
            )
