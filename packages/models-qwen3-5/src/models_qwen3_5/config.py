"""The sizes of a checkpoint, read from its `config.json` and checked."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from system1_core.errors import CheckpointError

# What this code computes; another value would be another network.
_TEXT_FIXED = {
    "hidden_act": "silu",
    "attention_bias": False,
    "attn_output_gate": True,
    "use_sliding_window": False,
}
_ROPE_FIXED = {"rope_type": "default", "mrope_interleaved": True}
_VISION_FIXED: dict[str, Any] = {
    "hidden_act": "gelu_pytorch_tanh",
    "deepstack_visual_indexes": [],
    "in_channels": 3,
}
_VISION_TYPES = ("qwen3_5", "qwen3_5_vision")
_TEXT_TYPES = ("qwen3_5", "qwen3_5_text")


@dataclass(frozen=True, slots=True, kw_only=True)
class TextConfig:
    """Sizes of the text decoder; the names are those of `config.json`."""

    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    layer_types: tuple[str, ...]
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    linear_num_key_heads: int
    linear_num_value_heads: int
    linear_key_head_dim: int
    linear_value_head_dim: int
    linear_conv_kernel_dim: int
    rms_norm_eps: float
    vocab_size: int
    rope_theta: float
    rotary_dim: int
    mrope_section: tuple[int, int, int]
    max_position_embeddings: int
    tie_word_embeddings: bool

    @property
    def conv_channels(self) -> int:
        keys = self.linear_num_key_heads * self.linear_key_head_dim
        return 2 * keys + self.linear_num_value_heads * self.linear_value_head_dim


@dataclass(frozen=True, slots=True, kw_only=True)
class VisionConfig:
    """Sizes of the vision tower."""

    hidden_size: int
    intermediate_size: int
    depth: int
    num_heads: int
    num_position_embeddings: int
    out_hidden_size: int
    patch_size: int
    temporal_patch_size: int
    spatial_merge_size: int

    @property
    def patch_values(self) -> int:
        """Numbers in one patch row: 3 channels, time, height, width."""
        return 3 * self.temporal_patch_size * self.patch_size**2


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """Both parts; `vision` and the image token are None for a text-only export."""

    text: TextConfig
    vision: VisionConfig | None = None
    image_token_id: int | None = None


class _Fields:
    """Typed reading of one JSON object; every error names the file and the key."""

    def __init__(self, file: Path, where: str, values: Any) -> None:
        if not isinstance(values, dict):
            raise CheckpointError(
                f"{file}: {where or 'the file'} is a {type(values).__name__}, expected an object; "
                "fetch the file again"
            )
        self.file = file
        self.where = where
        self.values = values

    def fault(self, key: str, expected: str) -> CheckpointError:
        found = repr(self.values[key]) if key in self.values else "nothing"
        return CheckpointError(
            f"{self.file}: {self.where}{key} is {found}, expected {expected}; "
            "name the folder of a dense Qwen3.5 checkpoint"
        )

    def positive(self, key: str) -> int:
        value = self.values.get(key)
        if type(value) is not int or value < 1:
            raise self.fault(key, "a positive integer")
        return value

    def number(self, key: str) -> float:
        value = self.values.get(key)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e30:
            raise self.fault(key, "a positive number")
        return float(value)

    def flag(self, key: str, default: bool) -> bool:
        value = self.values.get(key, default)
        if not isinstance(value, bool):
            raise self.fault(key, "true or false")
        return value

    def check(self, fixed: Mapping[str, Any]) -> None:
        """Keys that may be absent, but must then mean what `fixed` says."""
        for key, value in fixed.items():
            if self.values.get(key, value) != value:
                raise self.fault(key, repr(value))


def read_config(folder: Path) -> ModelConfig:
    """The config of a checkpoint folder, image-text or text-only.

    Raises CheckpointError for a missing file, a missing size, or a network this code is not.
    """
    file = folder / "config.json"
    try:
        values = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise CheckpointError(f"{file}: missing; name the folder of a checkpoint") from error
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{file}: is no JSON: {error}; fetch the file again") from error
    top = _Fields(file, "", values)
    if "text_config" not in top.values:
        return ModelConfig(text=_text_config(top, top))
    text = _text_config(_Fields(file, "text_config.", top.values["text_config"]), top)
    if top.values.get("vision_config") is None:
        return ModelConfig(text=text)
    vision = _vision_config(_Fields(file, "vision_config.", top.values["vision_config"]))
    if vision.out_hidden_size != text.hidden_size:
        raise CheckpointError(
            f"{file}: vision_config.out_hidden_size is {vision.out_hidden_size}, expected "
            f"text_config.hidden_size, {text.hidden_size}; fetch the file again"
        )
    return ModelConfig(text=text, vision=vision, image_token_id=top.positive("image_token_id"))


def _text_config(fields: _Fields, top: _Fields) -> TextConfig:
    if fields.values.get("model_type") not in _TEXT_TYPES:
        raise fields.fault("model_type", " or ".join(_TEXT_TYPES))
    fields.check(_TEXT_FIXED)
    head_dim = fields.positive("head_dim")
    theta, rotary_dim, section = _rope(fields, head_dim)
    tied = fields.flag("tie_word_embeddings", False)
    config = TextConfig(
        hidden_size=fields.positive("hidden_size"),
        intermediate_size=fields.positive("intermediate_size"),
        num_hidden_layers=fields.positive("num_hidden_layers"),
        layer_types=_layer_types(fields),
        num_attention_heads=fields.positive("num_attention_heads"),
        num_key_value_heads=fields.positive("num_key_value_heads"),
        head_dim=head_dim,
        linear_num_key_heads=fields.positive("linear_num_key_heads"),
        linear_num_value_heads=fields.positive("linear_num_value_heads"),
        linear_key_head_dim=fields.positive("linear_key_head_dim"),
        linear_value_head_dim=fields.positive("linear_value_head_dim"),
        linear_conv_kernel_dim=fields.positive("linear_conv_kernel_dim"),
        rms_norm_eps=fields.number("rms_norm_eps"),
        vocab_size=fields.positive("vocab_size"),
        rope_theta=theta,
        rotary_dim=rotary_dim,
        mrope_section=section,
        max_position_embeddings=fields.positive("max_position_embeddings"),
        # The outer flag is the one that image-text classes follow.
        tie_word_embeddings=top.flag("tie_word_embeddings", tied),
    )
    for many, few in (
        ("num_attention_heads", "num_key_value_heads"),
        ("linear_num_value_heads", "linear_num_key_heads"),
    ):
        if getattr(config, many) % getattr(config, few):
            raise fields.fault(many, f"a multiple of {few}, {getattr(config, few)}")
    return config


def _rope(fields: _Fields, head_dim: int) -> tuple[float, int, tuple[int, int, int]]:
    rope = _Fields(
        fields.file, f"{fields.where}rope_parameters.", fields.values.get("rope_parameters")
    )
    rope.check(_ROPE_FIXED)
    source = rope if "partial_rotary_factor" in rope.values else fields
    rotary_dim = int(head_dim * source.number("partial_rotary_factor"))
    section = rope.values.get("mrope_section")
    if (
        not isinstance(section, list)
        or len(section) != 3
        or any(type(part) is not int or part < 0 for part in section)
        or 2 * sum(section) != rotary_dim
    ):
        raise rope.fault("mrope_section", f"three integers with the sum {rotary_dim / 2:g}")
    return rope.number("rope_theta"), rotary_dim, (section[0], section[1], section[2])


def _layer_types(fields: _Fields) -> tuple[str, ...]:
    count = fields.positive("num_hidden_layers")
    listed = fields.values.get("layer_types")
    if listed is None:
        interval = fields.values.get("full_attention_interval", 4)
        if type(interval) is not int or interval < 1:
            raise fields.fault("full_attention_interval", "a positive integer")
        return tuple(
            "linear_attention" if (layer + 1) % interval else "full_attention"
            for layer in range(count)
        )
    known = ("linear_attention", "full_attention")
    if not isinstance(listed, list) or len(listed) != count or any(t not in known for t in listed):
        raise fields.fault("layer_types", f"{count} of {' and '.join(known)}")
    return tuple(listed)


def _vision_config(fields: _Fields) -> VisionConfig:
    # Older files write the outer model_type here.
    if fields.values.get("model_type", "qwen3_5") not in _VISION_TYPES:
        raise fields.fault("model_type", " or ".join(_VISION_TYPES))
    fields.check(_VISION_FIXED)
    config = VisionConfig(
        **{name: fields.positive(name) for name in VisionConfig.__dataclass_fields__}
    )
    side = round(config.num_position_embeddings**0.5)
    if side * side != config.num_position_embeddings:
        raise fields.fault("num_position_embeddings", "a square number")
    if config.hidden_size % (4 * config.num_heads):
        raise fields.fault("hidden_size", f"a multiple of 4 * num_heads, {4 * config.num_heads}")
    return config
