"""The two loaders of the families, and their export."""

from __future__ import annotations

from pathlib import Path

from models_cuas1.checkpoint import ADAPTER_STEM, EXPORT_KINDS, find_sources
from models_cuas1.executor import CuaExecutor
from models_cuas1.processor import CuaProcessor
from models_cuas1.reference import REVISION
from models_cuas1.weights import load_backbones, parts_of
from models_qwen3_5.export import Export, read_export, write_export
from models_qwen3_5.ops import takes_pixels
from system1_core.errors import CheckpointError
from system1_core.executor import Executor
from system1_core.family import Load
from system1_core.manifest import sha256_of
from system1_core.processor import Processor
from system1_torch.dtype import torch_dtype

# What the processor reads of a folder, in the order in which an export holds it.
_NEEDED = ("config.json", "tokenizer.json", "preprocessor_config.json")
_WHERE_PRESENT = ("tokenizer_config.json", "chat_template.jinja")


def load_processor(load: Load) -> Processor:
    sources = find_sources(load)
    for source in sources:
        if source.adapter is None:
            read_export(source.folder, EXPORT_KINDS[source.modality], weights=False)
    modalities = [source.modality for source in sources]
    split = load.options.get("split")
    on_device = takes_pixels(load.backend)
    return CuaProcessor(sources[-1].folder, modalities, split, on_device=on_device)


def load_executor(load: Load) -> Executor:
    return CuaExecutor(load_backbones(load), is_deterministic=load.deterministic)


def export(load: Load, out: Path) -> None:
    """Write the merged network of each modality: into `text/` and `multimodal/`, or into `out`
    itself for a family of one.

    Raises CheckpointError.
    """
    sources = find_sources(load)
    for source in sources:
        if source.adapter is None:
            raise CheckpointError(
                f"{source.folder}: is an export already; name the folder of the adapters"
            )
        folder = out if len(sources) == 1 else out / source.modality
        folder.mkdir(exist_ok=True)
        details = {
            "adapter_sha256": sha256_of(source.adapter / ADAPTER_STEM),
            "adapters": f"cua-ai/cua-s1-4b-0.2@{REVISION}",
        }
        made = Export(
            kind=EXPORT_KINDS[source.modality],
            parts=parts_of(source),
            dtype=torch_dtype(load.dtype),
            files=_files(source.folder),
            details=details,
        )
        write_export(source.folder, made, folder)


def _files(base: Path) -> dict[str, bytes]:
    files = {}
    for name in (*_NEEDED, *_WHERE_PRESENT):
        file = base / name
        if file.is_file():
            files[name] = file.read_bytes()
        elif name in _NEEDED:
            raise CheckpointError(f"{file}: missing; fetch it from the base's repository")
    return files
