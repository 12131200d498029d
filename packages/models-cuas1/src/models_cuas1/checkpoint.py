"""Adapters and exports of Cua-S1: where they lie, and the proof that they are the right ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from models_cuas1.prompt import MULTIMODAL, TEXT
from models_qwen3_5.checkpoint import VISION_PREFIX, load_adapter, text_prefix
from models_qwen3_5.config import ModelConfig, read_config
from models_qwen3_5.export import MANIFEST, is_export
from models_qwen3_5.plugin import QWEN3_5_4B
from system1_core.errors import CheckpointError
from system1_core.family import Load
from system1_torch.lora import LoraAdapter
from system1_torch.safetensors_file import Safetensors

ADAPTER_CONFIG = "adapter_config.json"
ADAPTER_STEM = "adapter_model.safetensors"
FAMILIES = {
    "cuas1": (TEXT, MULTIMODAL),
    "cuas1-text": (TEXT,),
    "cuas1-multimodal": (MULTIMODAL,),
}
EXPORT_KINDS = {TEXT: "cuas1-text", MULTIMODAL: "cuas1-multimodal"}
_FLOATS = (torch.float32, torch.bfloat16, torch.float16)
_MLP = ("mlp.gate_proj", "mlp.up_proj", "mlp.down_proj")
_ATTENTION = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj")


@dataclass(frozen=True, slots=True)
class Source:
    """Where one modality comes from: a base with its adapter, or an export (`adapter` None)."""

    modality: str
    folder: Path
    adapter: Path | None


def find_sources(load: Load) -> list[Source]:
    """What each modality of the family is loaded from, text first.

    The family's folder, or else its pinned adapters, holds `text/` and `multimodal/`, each an
    adapter or an export; a family of one modality also takes such a folder itself. Raises
    CheckpointError.
    """
    modalities = FAMILIES[load.family]
    root = load.folder or load.fetch(checkpoint_name(load.family))
    folders = {modality: _folder_of(root, modality, modalities) for modality in modalities}
    if all(is_export(folder) for folder in folders.values()):
        return [Source(modality, folder, None) for modality, folder in folders.items()]
    for modality, folder in folders.items():
        if is_export(folder):
            raise CheckpointError(
                f"{folder}: is an export of the {modality} modality beside an adapter; "
                "put two adapters or two exports side by side"
            )
    base = load.options.get("base") or load.fetch(QWEN3_5_4B.name)
    return [Source(modality, Path(base), folder) for modality, folder in folders.items()]


def checkpoint_name(family: str) -> str:
    """The name of a family's pinned adapters."""
    return family.replace("cuas1", "cua-s1-4b-0.2")


def _folder_of(root: Path, modality: str, modalities: Sequence[str]) -> Path:
    candidates = [root, root / modality] if len(modalities) == 1 else [root / modality]
    for folder in candidates:
        if (folder / ADAPTER_CONFIG).is_file() or is_export(folder):
            return folder
    if len(modalities) > 1:
        # One of the two modalities can be served alone, under a name of its own.
        remedy = f"add it, or serve one modality as cuas1-{TEXT}={root} or cuas1-{MULTIMODAL}=…"
    else:
        remedy = "name the folder of the adapters, or of a finished export"
    raise CheckpointError(
        f"{candidates[-1]}: found neither {ADAPTER_CONFIG} nor {MANIFEST}; {remedy}"
    )


def adapted_weights(config: ModelConfig, modality: str, prefix: str) -> set[str]:
    """Every weight that the adapter of a modality adapts, as a base names them whose decoder
    stands behind `prefix`: 128 of the 4B for text, 178 with the vision tower's."""
    names: set[str] = set()
    for index, kind in enumerate(config.text.layer_types):
        modules = (*_MLP, *_ATTENTION) if kind == "full_attention" else _MLP
        names |= {f"{prefix}layers.{index}.{module}.weight" for module in modules}
    if modality == MULTIMODAL and config.vision is not None:
        places = [f"blocks.{block}.mlp" for block in range(config.vision.depth)]
        for place in (*places, "merger"):
            names |= {f"{VISION_PREFIX}{place}.linear_fc{number}.weight" for number in (1, 2)}
    return names


def open_adapter(folder: Path, base: Path, modality: str) -> LoraAdapter:
    """The adapter in `folder`, checked to be of this modality and of the base's sizes.

    PEFT only warns of modules it cannot place, so what is adapted is compared by name. Raises
    CheckpointError, also for values that are no finite floats.
    """
    prefix = text_prefix(Safetensors.open(base))
    adapter = load_adapter(folder, prefix)
    found = set(adapter.modules)
    is_multimodal = any(name.startswith(VISION_PREFIX) for name in found)
    if is_multimodal != (modality == MULTIMODAL):
        actual = MULTIMODAL if is_multimodal else TEXT
        raise CheckpointError(
            f"{folder}: is the {actual} adapter, expected the {modality} one; "
            f"serve it as cuas1-{actual}={folder}"
        )
    expected = adapted_weights(read_config(base), modality, prefix)
    if found != expected:
        odd = sorted(found ^ expected)
        raise CheckpointError(
            f"{folder}: adapts {len(found)} weights, expected the {len(expected)} of the "
            f"{modality} adapter over {base}; they differ in {len(odd)}, first {odd[0]!r}; "
            "fetch the adapter again, or name the base it was trained on"
        )
    _check_values(folder)
    return adapter


def _check_values(folder: Path) -> None:
    file = Safetensors.open(folder, stem=ADAPTER_STEM)
    for name, entry in file.items():
        if entry.dtype not in _FLOATS:
            raise CheckpointError(
                f"{entry.file}: tensor {name!r}: found {entry.dtype}, expected a float; "
                "fetch the adapter again"
            )
        with file.mapped(name) as tensor:
            low, high = torch.aminmax(tensor)
            del tensor
        if not bool(torch.isfinite(low) & torch.isfinite(high)):
            raise CheckpointError(
                f"{entry.file}: tensor {name!r}: holds values that are not finite; "
                "fetch the adapter again"
            )
