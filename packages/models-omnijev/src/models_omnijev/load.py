"""Both halves of the family, from their files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import torch
from torch import Tensor, nn

from models_omnijev.checkpoint import Folders, check_manifest, find_folders, read_meta
from models_omnijev.executor import OmnijevExecutor
from models_omnijev.heads import OptionHead, OptionScorer, OrdinalHead
from models_omnijev.pictures import load_settings
from models_omnijev.processor import OmnijevProcessor
from models_omnijev.prompt import PromptWriter
from models_qwen3_5.checkpoint import Parts, load_adapter, text_prefix
from models_qwen3_5.config import ModelConfig, read_config
from models_qwen3_5.executor import open_backbone
from models_qwen3_5.export import read_export
from models_qwen3_5.ops import takes_pixels
from system1_core.errors import CheckpointError
from system1_core.family import Load
from system1_torch.loading import check_shapes, load_into, load_pt, make_empty
from system1_torch.safetensors_file import Safetensors

EXPORT_KIND = "omnijev"
HeadT = TypeVar("HeadT", OptionHead, OrdinalHead)


def load_processor(load: Load) -> OmnijevProcessor:
    """The host side. Raises CheckpointError where the files do not fit together."""
    folders = find_folders(load)
    if folders.base is None:
        read_export(folders.checkpoint, EXPORT_KIND, weights=False)
    folder = folders.checkpoint
    config = read_config(folders.weights)
    if config.vision is None:
        raise CheckpointError(
            f"{folders.weights}: has no vision tower; name the image-text checkpoint of the base"
        )
    meta = read_meta(folder)
    head = load_head(folder, OptionHead, config.text.hidden_size)
    writer = PromptWriter(folder)
    _check_tokens(writer, config, folders)
    settings = load_settings(folder, config.vision)
    return OmnijevProcessor(
        writer,
        settings=replace(settings, on_device=takes_pixels(load.backend)),
        scorer=OptionScorer.of(head, is_softmax=meta.is_softmax),
        calibration=meta.calibration,
        max_positions=config.text.max_position_embeddings,
    )


def load_executor(load: Load) -> OmnijevExecutor:
    """The device side: base, adapter and option tokens merged, heads in float32."""
    folders = find_folders(load)
    folder = folders.checkpoint
    if folders.base is None:
        read_export(folder, EXPORT_KIND)
    else:
        check_manifest(folder)
    hidden_size = read_config(folders.weights).text.hidden_size
    backbone = open_backbone(load, folders.weights, make_parts(folders))
    option_head = load_head(folder, OptionHead, hidden_size)
    ordinal_head = load_head(folder, OrdinalHead, hidden_size)
    return OmnijevExecutor(
        backbone,
        option_head.to(backbone.device),
        ordinal_head.to(backbone.device),
        is_deterministic=load.deterministic,
    )


def make_parts(folders: Folders) -> Parts:
    """What to change of the base: nothing in an export, which holds it merged.

    The table is cut to the tokenizer's length, so that the padding behind it is no part of the
    vocabulary's softmax, and the option markers get rows of their own.
    """
    if folders.base is None:
        return Parts()
    writer = PromptWriter(folders.checkpoint)
    config = read_config(folders.base)
    rows = load_marker_rows(folders.checkpoint, config)
    return Parts(
        vocabulary=writer.num_tokens,
        rows={writer.open_id: rows[0], writer.close_id: rows[1]},
        adapter=load_adapter(folders.checkpoint, text_prefix(Safetensors.open(folders.base))),
    )


def load_head(folder: Path, kind: type[HeadT], hidden_size: int) -> HeadT:
    """A head in float32, from safetensors where both forms are there.

    Raises CheckpointError for a missing or extra tensor, another shape or dtype, and a value that
    is not finite.
    """
    stem = _STEMS[kind]
    head = make_empty(lambda: kind(hidden_size), device="cpu", dtype=torch.float32)
    file = folder / f"{stem}.safetensors"
    if file.is_file():
        load_into(head, Safetensors.open(file), check_finite=True)
        return head
    file = folder / f"{stem}.pt"
    _load_state(head, load_pt(file), file)
    return head


def load_marker_rows(folder: Path, config: ModelConfig) -> Tensor:
    """The embedding rows [2, D] of the opening and the closing marker."""
    file = folder / "new_tok_emb.pt"
    rows: Tensor = load_pt(file)
    expected = torch.empty(2, config.text.hidden_size, device="meta")
    _check_tensors({"rows": rows}, {"rows": expected}, file)
    return rows


_STEMS: dict[type[nn.Module], str] = {OptionHead: "head", OrdinalHead: "ord"}


def _load_state(head: nn.Module, state: object, file: Path) -> None:
    if not isinstance(state, dict):
        raise CheckpointError(
            f"{file}: holds a {type(state).__name__}, expected tensors by name; fetch it again"
        )
    targets = head.state_dict()
    _check_tensors(state, targets, file)
    with torch.no_grad():
        for name, target in targets.items():
            target.copy_(state[name])


def _check_tensors(found: dict[str, Tensor], expected: dict[str, Tensor], file: Path) -> None:
    for name, value in found.items():
        if not isinstance(value, Tensor) or value.dtype != torch.float32:
            kind = value.dtype if isinstance(value, Tensor) else type(value).__name__
            raise CheckpointError(
                f"{file}: {name!r}: found {kind}, expected a float32 tensor; fetch it again"
            )
    check_shapes(found, expected, file)
    for name, value in found.items():
        if not bool(torch.isfinite(value).all()):
            raise CheckpointError(
                f"{file}: {name!r}: holds values that are not finite; fetch it again"
            )


def _check_tokens(writer: PromptWriter, config: ModelConfig, folders: Folders) -> None:
    file = folders.checkpoint / "tokenizer.json"
    if writer.image_id != config.image_token_id:
        raise CheckpointError(
            f"{file}: the image placeholder is token {writer.image_id}, the base has "
            f"{config.image_token_id}; name the base of this checkpoint"
        )
    if writer.num_tokens > config.text.vocab_size:
        raise CheckpointError(
            f"{file}: {writer.num_tokens} tokens, the base has {config.text.vocab_size} rows; "
            "name the base of this checkpoint"
        )
    if max(writer.open_id, writer.close_id) >= writer.num_tokens:
        raise CheckpointError(
            f"{file}: the option markers are beyond its {writer.num_tokens} tokens; fetch it again"
        )
