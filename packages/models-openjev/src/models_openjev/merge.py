"""`system1 export`: a package merged into its base, in the layout of the original's exporter."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

from models_openjev.checkpoint import MERGED_FILE, MERGED_FORMAT, Source, read_json
from models_openjev.executor import make_parts
from models_openjev.head import load_head
from models_openjev.identity import check_network
from models_openjev.tokens import AUTOMATIC, open_tokenizer, split_rule
from models_qwen3_5.checkpoint import text_prefix
from models_qwen3_5.config import read_config
from models_qwen3_5.export import Export, write_export
from system1_core.errors import ConfigError
from system1_core.family import Load
from system1_torch.safetensors_file import Safetensors


def export(load: Load, source: Source, out: Path) -> None:
    """Write the merged text model of a package into `out`, bfloat16.

    Raises ConfigError for another dtype and for what is merged already, CheckpointError for
    files that do not fit together.
    """
    if source.is_merged:
        raise ConfigError(f"{source.folder}: is merged already; copy the folder")
    if load.dtype != "bfloat16":
        raise ConfigError(
            f"--dtype {load.dtype}: a merged Open-Jev export is bfloat16; use --dtype bfloat16"
        )
    config = read_config(source.base).text
    check_network(config, source.published, source.base / "config.json")
    marker = _marker(source, config.hidden_size)
    prefix = text_prefix(Safetensors.open(source.base))
    plan = Export(
        kind=MERGED_FORMAT,
        parts=make_parts(source, config, torch.bfloat16),
        dtype=torch.bfloat16,
        rename=lambda name: name.removeprefix(prefix),
        files={
            "config.json": _json(_text_config(source.base)),
            **_tokenizer_files(source, load.options.get("split") or AUTOMATIC),
            MERGED_FILE: _json(marker),
        },
    )
    write_export(source.base, plan, out)


def _marker(source: Source, hidden_size: int) -> dict[str, Any]:
    """The content of the file whose presence says that the export is whole."""
    head = load_head(source, hidden_size)
    return {
        "format": MERGED_FORMAT,
        "model_id": source.model_id,
        "base_revision": source.base_revision,
        "checkpoint_revision": source.checkpoint_revision,
        "temperature": source.temperature,
        "max_length": source.max_length,
        "chat_prefix": source.prefix,
        "chat_suffix": source.suffix,
        "head_weight": head.weight.tolist(),
        "head_bias": head.bias,
    }


def _text_config(base: Path) -> dict[str, Any]:
    """The text part of the base's config, which stands alone in an export."""
    values = read_json(base / "config.json")
    text: dict[str, Any] = values.get("text_config", values)
    return text | {
        "model_type": "qwen3_5_text",
        "architectures": ["Qwen3_5TextModel"],
        "dtype": "bfloat16",
        "tie_word_embeddings": False,
    }


def _tokenizer_files(source: Source, split: str) -> dict[str, bytes]:
    """The tokenizer with the rule that is in effect, and the files beside it."""
    beside = ("tokenizer_config.json", "chat_template.jinja")
    files = {
        name: (source.base / name).read_bytes() for name in beside if (source.base / name).is_file()
    }
    content = (source.base / "tokenizer.json").read_bytes()
    if split_rule(source, split) is not None:
        content = open_tokenizer(source, split).to_str().encode()
    return {"tokenizer.json": content, **files}


def _json(value: Any) -> bytes:
    return (json.dumps(value, indent=1, ensure_ascii=False) + "\n").encode()
