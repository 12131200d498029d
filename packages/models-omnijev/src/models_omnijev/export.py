"""The merged form: backbone, adapter and option tokens in one checkpoint, heads beside it."""

from __future__ import annotations

import json
from pathlib import Path

from safetensors.torch import save

from models_omnijev.checkpoint import META, check_manifest, find_folders, read_meta
from models_omnijev.heads import OptionHead, OrdinalHead
from models_omnijev.load import EXPORT_KIND, load_head, make_parts
from models_qwen3_5.config import read_config
from models_qwen3_5.export import Export, write_export
from system1_core.errors import ConfigError
from system1_core.family import Load
from system1_torch.dtype import torch_dtype

# The image processor's settings have one of two names; the chat template may be in the config.
_COPIED = (
    "chat_template.jinja",
    "tokenizer.json",
    "tokenizer_config.json",
    "processor_config.json",
    "preprocessor_config.json",
    META,
)


def export(load: Load, out: Path) -> None:
    """Write the merged model into `out`; merged in float32 and cast to `load.dtype` once.

    Raises ConfigError for what is merged already, CheckpointError for files that do not fit.
    """
    folders = find_folders(load)
    if folders.base is None:
        raise ConfigError(f"{folders.checkpoint}: is merged already; copy the folder")
    check_manifest(folders.checkpoint)
    read_meta(folders.checkpoint)
    parts = make_parts(folders)
    hidden_size = read_config(folders.base).text.hidden_size
    files = {"config.json": _config(folders.base, parts.vocabulary)}
    for name in _COPIED:
        file = folders.checkpoint / name
        if file.is_file():
            files[name] = file.read_bytes()
    option_head = load_head(folders.checkpoint, OptionHead, hidden_size)
    ordinal_head = load_head(folders.checkpoint, OrdinalHead, hidden_size)
    files["head.safetensors"] = save(dict(option_head.state_dict()))
    files["ord.safetensors"] = save(dict(ordinal_head.state_dict()))
    plan = Export(kind=EXPORT_KIND, parts=parts, dtype=torch_dtype(load.dtype), files=files)
    write_export(folders.base, plan, out)


def _config(base: Path, vocabulary: int | None) -> bytes:
    """The base's config with the rows that are left of its vocabulary."""
    values = json.loads((base / "config.json").read_text(encoding="utf-8"))
    values["text_config"]["vocab_size"] = vocabulary
    return (json.dumps(values, indent=2) + "\n").encode()
