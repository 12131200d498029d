"""Checkpoints of the Qwen3.5 family: their tensors by name, adapters, pins."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch
from torch import Tensor

from models_qwen3_5.backbone import Backbone
from models_qwen3_5.config import ModelConfig, TextConfig, read_config
from models_qwen3_5.ops import Ops
from models_qwen3_5.planner import Planner
from models_qwen3_5.text import TextModel
from models_qwen3_5.vision import VisionTower
from system1_core.errors import CheckpointError
from system1_torch.loading import check_targets, load_into, make_empty
from system1_torch.lora import LoraAdapter
from system1_torch.safetensors_file import Safetensors

# The first under which the embedding is found: image-text class, text class, bare text model.
TEXT_PREFIXES = ("model.language_model.", "model.", "")
VISION_PREFIX = "model.visual."
HEAD = "lm_head.weight"
EMBEDDING = "embed_tokens.weight"
_MTP_PREFIX = "mtp."


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What to load of a checkpoint, and what to change on the way.

    `vocabulary` keeps only so many rows of the embedding (None: all); `rows` then overwrites
    single ones. `adapter` is merged in fp32 and cast once; `delta_dtype` bfloat16 rounds its
    delta first.
    """

    vision: bool = True
    head: bool = True
    vocabulary: int | None = None
    rows: Mapping[int, Tensor] = field(default_factory=dict)
    adapter: LoraAdapter | None = None
    delta_dtype: torch.dtype = torch.float32


def load_backbone(
    folder: Path,
    parts: Parts | None = None,
    *,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
    ops: Ops | None = None,
    planner: Planner | None = None,
    quantised: bool = False,
) -> Backbone:
    """The model in a checkpoint folder, tensors copied one at a time to their place.

    `quantised` turns the projections of each layer into FP8 before the next layer is loaded, so
    that only one layer's are there in `dtype` at a time.
    Raises CheckpointError for files that do not hold exactly the tensors of their config, and
    for an adapter of another model.
    """
    parts = parts or Parts()
    config = read_config(folder)
    source = Safetensors.open(folder)
    prefix = text_prefix(source)
    text, vision = make_models(config, parts, device="meta" if quantised else device, dtype=dtype)
    if quantised:
        # Layers get their memory when their turn comes.
        text.to_empty(device=device, recurse=False)
        if vision is not None:
            vision.to_empty(device=device)
    targets = checkpoint_targets(text, vision, prefix)
    check_source(source, targets, parts, has_vision=vision is not None)
    _load(source, text, targets, parts, prefix)
    config = replace(config, text=text.config)
    return Backbone(config, text, vision, ops=ops, planner=planner)


def make_models(
    config: ModelConfig, parts: Parts, *, device: torch.device | str, dtype: torch.dtype
) -> tuple[TextModel, VisionTower | None]:
    """The decoder and the tower that `parts` asks for, their weights uninitialised."""
    shrunken = _shrunken(config, parts)
    text = make_empty(lambda: TextModel(shrunken, head=parts.head), device=device, dtype=dtype)
    tower = config.vision
    if tower is None or not parts.vision:
        return text, None
    return text, make_empty(lambda: VisionTower(tower), device=device, dtype=dtype)


def text_prefix(source: Safetensors) -> str:
    """What stands before the decoder's names, found by its embedding."""
    for prefix in TEXT_PREFIXES:
        if prefix + EMBEDDING in source:
            return prefix
    raise CheckpointError(
        f"{source.source}: found no {EMBEDDING} behind any of {TEXT_PREFIXES}; "
        "name the folder of a dense Qwen3.5 checkpoint"
    )


def checkpoint_targets(
    text: TextModel, vision: VisionTower | None, prefix: str = TEXT_PREFIXES[0]
) -> dict[str, Tensor]:
    """Where each tensor of a checkpoint goes: views into the model, by their names in the files."""
    targets = {prefix + name: target for name, target in text.targets()}
    if text.lm_head is not None:
        targets[HEAD] = text.lm_head
    if vision is not None:
        targets |= {VISION_PREFIX + name: value for name, value in vision.state_dict().items()}
    return targets


def load_adapter(folder: Path, prefix: str = TEXT_PREFIXES[0]) -> LoraAdapter:
    """A LoRA adapter, its modules named as the base whose decoder stands behind `prefix` has them.

    Accepts names of the image-text, causal and bare text classes.
    """

    def rename(module: str) -> str:
        if module.startswith((TEXT_PREFIXES[0], VISION_PREFIX)):
            return module.replace(TEXT_PREFIXES[0], prefix, 1)
        return prefix + module.removeprefix("model.")

    return LoraAdapter.load(folder, rename)


def _shrunken(config: ModelConfig, parts: Parts) -> TextConfig:
    if parts.vocabulary is None:
        return config.text
    if parts.vocabulary > config.text.vocab_size:
        raise CheckpointError(
            f"a vocabulary of {parts.vocabulary} was asked for, the checkpoint has "
            f"{config.text.vocab_size} rows; name the base this tokenizer belongs to"
        )
    return replace(config.text, vocab_size=parts.vocabulary)


def check_source(
    source: Safetensors, targets: Mapping[str, Tensor], parts: Parts, *, has_vision: bool
) -> None:
    """Nothing may be left over but the draft layer, the head, and a tower nobody asked for; the
    adapter must be of this model.

    Raises CheckpointError.
    """
    ignored = (_MTP_PREFIX,) if has_vision else (_MTP_PREFIX, VISION_PREFIX)
    extra = [n for n in source if n not in targets and n != HEAD and not n.startswith(ignored)]
    if extra:
        raise CheckpointError(
            f"{source[extra[0]].file}: {len(extra)} tensors that the config does not know, first "
            f"{extra[0]!r}; the weights do not belong to this config"
        )
    if parts.adapter is not None:
        _check_adapter(parts.adapter, source, targets)


def _check_adapter(
    adapter: LoraAdapter, source: Safetensors, targets: Mapping[str, Tensor]
) -> None:
    """Every module it adapts must be loaded: one left out would be another model."""
    adapter.check_base(source)
    idle = sorted(set(adapter.modules) - set(targets))
    if idle:
        raise CheckpointError(
            f"{adapter.folder}: adapts {len(idle)} weights that are not loaded, first {idle[0]!r}; "
            "name the adapter for this use"
        )


def _load(
    source: Safetensors,
    text: TextModel,
    targets: Mapping[str, Tensor],
    parts: Parts,
    prefix: str,
) -> None:
    """Fill the targets; the layers of those on the meta device one by one, each then quantised."""
    whole = dict(targets)
    if parts.vocabulary is not None:
        for name in {prefix + EMBEDDING, HEAD} & set(targets):
            _load_rows(source, name, whole.pop(name))
    adapter = parts.adapter

    def transform(name: str, tensor: Tensor) -> Tensor:
        if adapter is None:
            return tensor
        return adapter.merge(name, tensor, delta_dtype=parts.delta_dtype)

    def fill(some: Mapping[str, Tensor]) -> None:
        load_into(some, source, rename=_only(some), transform=transform)

    # What is missing at the end must be known before minutes of loading.
    check_targets(whole, source, _only(whole))
    fill({name: target for name, target in whole.items() if not target.is_meta})
    for start, layer in text.layers_by_name(prefix):
        if not layer.input_layernorm.is_meta:
            continue
        layer.to_empty(device=text.embed_tokens.device)
        fill({start + name: target for name, target in layer.targets()})
        layer.quantise()
    for row, value in parts.rows.items():
        targets[prefix + EMBEDDING][row].copy_(value)


def _only(targets: Mapping[str, Tensor]) -> Callable[[str], str | None]:
    return lambda name: name if name in targets else None


def _load_rows(source: Safetensors, name: str, target: Tensor) -> None:
    """The leading rows of a table that has more of them."""
    found = source[name].shape if name in source else None
    if found is None or found[0] < target.shape[0] or found[1:] != tuple(target.shape[1:]):
        raise CheckpointError(
            f"{source.source}: tensor {name!r}: found shape {found and list(found)}, expected at "
            f"least {list(target.shape)}; the weights do not belong to this config"
        )
    with source.mapped(name) as tensor:
        target.copy_(tensor[: target.shape[0]])
        del tensor
