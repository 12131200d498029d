"""The two loaders of the families."""

from __future__ import annotations

from pathlib import Path

from models_laya.checkpoint import CHECKPOINTS, NAMES, find_checkpoints
from models_laya.config import load_config
from models_laya.executor import LayaExecutor
from models_laya.graphs import LayaGraphs
from models_laya.ops import LayaOps
from models_laya.options import LayaOptions
from models_laya.processor import LayaProcessor
from models_laya.rounds import Part
from models_laya.routing import Router
from models_laya.tokens import Tokens
from models_laya.weights import load_model
from system1_core.errors import CheckpointError
from system1_core.family import Load
from system1_torch.device import set_cpu_threads, torch_device
from system1_torch.dtype import torch_dtype

SINGLE_FAMILIES = {f"laya-{name}": name for name in NAMES}


def folders_of(load: Load) -> dict[str, Path]:
    """The checkpoints to serve, by name, in the order of preference.

    A single-checkpoint family serves its folder as it is; `laya` what its folder holds, else the
    folders its options name, else the pinned three. Raises CheckpointError.
    """
    if (name := SINGLE_FAMILIES.get(load.family)) is not None:
        return {name: load.folder or load.fetch(name)}
    named = {name: Path(folder) for name in NAMES if (folder := load.options.get(name))}
    chosen = load.options.get("checkpoints")
    found = {} if load.folder is None else find_checkpoints(load.folder)
    found |= named
    if not found:
        pinned = [checkpoint.name for checkpoint in CHECKPOINTS]
        return {name: load.fetch(name) for name in pinned if name in (chosen or pinned)}
    if missing := set(chosen or ()) - set(found):
        raise CheckpointError(
            f"{load.folder or 'options'}: no {', '.join(sorted(missing))} checkpoint, found "
            f"{', '.join(found)}; name its folder with --option laya.{min(missing)}=FOLDER"
        )
    return {name: found[name] for name in NAMES if name in found and name in (chosen or found)}


def load_processor(load: Load) -> LayaProcessor:
    """Configs and tokenizers of every checkpoint served."""
    parts = {}
    for name, folder in folders_of(load).items():
        config = load_config(folder)
        tokens = Tokens(folder / "tokenizer", config.encoder.vocab_size)
        parts[name] = Part(name=name, folder=folder.resolve().name, config=config, tokens=tokens)
    router = Router(
        loaded=tuple(parts),
        default=load.options.get("default_model") or "multilingual",
        auto_task=bool(load.options.get("auto_task")),
    )
    return LayaProcessor(parts, router, LayaOptions.of(load.options))


def load_executor(load: Load) -> LayaExecutor:
    """The networks of every checkpoint served, on the backend's device."""

    device, dtype = torch_device(load.backend.device), torch_dtype(load.dtype)
    # Beside another device the host only finishes: threads that spin would cost more than they do.
    set_cpu_threads(load.options.get("threads") if device.type == "cpu" else 1)
    ops = LayaOps.of(load.backend.ops)
    models = {
        name: load_model(folder, load_config(folder), ops, device, dtype)
        for name, folder in folders_of(load).items()
    }
    graphs = {}
    # The references wait for the device, which a graph may not.
    if device.type == "cuda" and "local_attention" in load.backend.ops:
        graphs = {
            name: LayaGraphs(model) for name, model in models.items() if model.head_size == 64
        }
    return LayaExecutor(models, is_deterministic=load.deterministic, graphs=graphs)
