"""From sources to networks: two of one base share every weight that no adapter touches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor, nn

from models_cuas1.checkpoint import EXPORT_KINDS, Source, find_sources, open_adapter
from models_cuas1.prompt import MULTIMODAL
from models_qwen3_5.backbone import Backbone
from models_qwen3_5.checkpoint import (
    Parts,
    check_source,
    checkpoint_targets,
    make_models,
    text_prefix,
)
from models_qwen3_5.config import read_config
from models_qwen3_5.executor import open_backbone, quantise_for
from models_qwen3_5.export import read_export
from models_qwen3_5.text import DeltaNet, TextModel
from system1_core.errors import CheckpointError
from system1_core.family import Load
from system1_torch.loading import load_into
from system1_torch.safetensors_file import Safetensors


def load_backbones(load: Load) -> dict[str, Backbone]:
    """A network for each modality of the family. Raises CheckpointError."""
    backbones: dict[str, Backbone] = {}
    for source in find_sources(load):
        parts = parts_of(source)
        if source.adapter is None:
            read_export(source.folder, EXPORT_KINDS[source.modality])
        if not backbones:
            backbones[source.modality] = open_backbone(load, source.folder, parts, quantised=False)
        else:
            (first,) = backbones.values()
            backbones[source.modality] = load_beside(first, source, parts)
    for backbone in backbones.values():
        quantise_for(load, backbone)
    return backbones


def parts_of(source: Source) -> Parts:
    """What to load for a modality: the tower only where pictures are read."""
    adapter = None
    if source.adapter is not None:
        adapter = open_adapter(source.adapter, source.folder, source.modality)
    return Parts(vision=source.modality == MULTIMODAL, adapter=adapter)


def load_beside(first: Backbone, source: Source, parts: Parts) -> Backbone:
    """A second network that holds only what differs from the `first`: the rest is the same memory.

    Weights of an export that would be shared are compared bit by bit, because its base may be
    another. Raises CheckpointError.
    """
    config = read_config(source.folder)
    if config.text != first.config.text:
        raise CheckpointError(
            f"{source.folder / 'config.json'}: is of another base than the first modality's; "
            "serve both from one base"
        )
    file = Safetensors.open(source.folder)
    text, _ = make_models(config, replace(parts, vision=False), device="meta", dtype=first.dtype)
    shared = share_weights(text, first.text)
    _materialise(text, first.device)
    vision = None
    if parts.vision and config.vision is not None:
        _, vision = make_models(config, parts, device="meta", dtype=first.dtype)
        assert vision is not None
        _materialise(vision, first.device)
    targets = checkpoint_targets(text, vision, text_prefix(file))
    check_source(file, targets, parts, has_vision=vision is not None)
    common = {name: target for name, target in targets.items() if target.data_ptr() in shared}
    own = {name: target for name, target in targets.items() if name not in common}
    adapter = parts.adapter
    load_into(
        own,
        file,
        rename=lambda name: name if name in own else None,
        transform=None if adapter is None else adapter.merge,
    )
    if adapter is None:
        _check_equal(common, file)
    return Backbone(config, text, vision, ops=first.ops, planner=first.planner)


def share_weights(text: TextModel, first: TextModel) -> set[int]:
    """Put the first network's weights in place of those that no adapter of Cua-S1 changes; where
    the checkpoint's tensors of these begin in memory."""
    text.embed_tokens, text.norm, text.lm_head = first.embed_tokens, first.norm, first.lm_head
    begins = {first.embed_tokens.data_ptr(), first.norm.data_ptr()}
    if first.lm_head is not None:
        begins.add(first.lm_head.data_ptr())
    for layer, other in zip(text.layers, first.layers, strict=True):
        for name in ("input_layernorm", "post_attention_layernorm"):
            setattr(layer, name, getattr(other, name))
            begins.add(getattr(other, name).data_ptr())
        if isinstance(other.mixer, DeltaNet):
            layer.mixer = other.mixer
            begins |= {target.data_ptr() for _, target in other.mixer.targets()}
    return begins


def _materialise(module: nn.Module, device: torch.device) -> None:
    """Memory for the weights that are still on the meta device."""
    for part in module.modules():
        for name, weight in list(part.named_parameters(recurse=False)):
            if weight.is_meta:
                empty = torch.empty_like(weight, device=device)
                part.register_parameter(name, nn.Parameter(empty, requires_grad=False))
    module.eval()


def _check_equal(common: Mapping[str, Tensor], file: Safetensors) -> None:
    for name, target in common.items():
        if name not in file:
            raise CheckpointError(
                f"{file.source}: tensor {name!r} is missing; copy the export anew"
            )
        with file.mapped(name) as tensor:
            is_equal = tensor.shape == target.shape and torch.equal(
                tensor.to(target.device, target.dtype), target
            )
            del tensor
        if not is_equal:
            raise CheckpointError(
                f"{file.source}: tensor {name!r} differs from the other modality's; "
                "export both from one base"
            )
