"""Sizes of a dense Qwen3 checkpoint, read from its `config.json`."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from system1_core.errors import CheckpointError

CONFIG_FILE = "config.json"
_SIZES = (
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "vocab_size",
    "max_position_embeddings",
)
# What this network computes; a checkpoint that says otherwise would be read wrongly.
_FIXED = {"model_type": "qwen3", "hidden_act": "silu"}
_ABSENT = ("attention_bias", "use_sliding_window", "quantization_config", "rope_scaling")
_MAX_SIZE = 1 << 24


@dataclass(frozen=True, slots=True, kw_only=True)
class Qwen3Config:
    """A Qwen3 decoder without its vocabulary head."""

    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    vocab_size: int
    max_position_embeddings: int
    rms_norm_eps: float
    rope_theta: float

    @classmethod
    def load(cls, folder: Path) -> Qwen3Config:
        """From a folder; raises CheckpointError for what is no dense Qwen3 checkpoint."""
        file = folder / CONFIG_FILE
        try:
            fields = json.loads(file.read_text("utf-8"))
        except FileNotFoundError:
            raise CheckpointError(
                f"{file}: missing; name the folder of a Qwen3 checkpoint"
            ) from None
        except (OSError, ValueError, RecursionError) as error:
            raise CheckpointError(f"{file}: {error}; fetch it again") from None
        if not isinstance(fields, dict):
            raise CheckpointError(f"{file}: holds no object; fetch it again")
        try:
            return cls._of(fields)
        except ValueError as error:
            raise CheckpointError(
                f"{file}: {error}; clm.encoder takes a plain dense Qwen3 checkpoint"
            ) from None

    @classmethod
    def _of(cls, fields: dict[str, Any]) -> Qwen3Config:
        for name, expected in _FIXED.items():
            if fields.get(name, expected) != expected or (
                name == "model_type" and name not in fields
            ):
                raise ValueError(f"{name} is {fields.get(name)!r}, expected {expected!r}")
        rope = fields.get("rope_parameters") or {}
        for name in _ABSENT:
            if fields.get(name):
                raise ValueError(f"{name} is {fields[name]!r}, expected none")
        if rope.get("rope_type", "default") != "default":
            raise ValueError(f"rope_type is {rope['rope_type']!r}, expected 'default'")
        sizes = {name: _size(fields, name) for name in _SIZES}
        if fields.get("head_dim") is None:
            sizes["head_dim"] = sizes["hidden_size"] // sizes["num_attention_heads"]
        else:
            sizes["head_dim"] = _size(fields, "head_dim")
        if sizes["num_attention_heads"] % sizes["num_key_value_heads"] or sizes["head_dim"] % 2:
            raise ValueError("attention heads do not divide evenly")
        return cls(
            **sizes,
            rms_norm_eps=_positive(fields, "rms_norm_eps"),
            rope_theta=_positive(rope if "rope_theta" in rope else fields, "rope_theta"),
        )


def _size(fields: dict[str, Any], name: str) -> int:
    value = fields.get(name)
    if type(value) is not int or not 1 <= value <= _MAX_SIZE:
        raise ValueError(f"{name} is {value!r}, expected 1 to {_MAX_SIZE}")
    return value


def _positive(fields: dict[str, Any], name: str) -> float:
    value = fields.get(name)
    if not isinstance(value, int | float) or isinstance(value, bool) or not value > 0:
        raise ValueError(f"{name} is {value!r}, expected a number above 0")
    return float(value)
