"""The two config files of a checkpoint, read strictly."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from system1_core.errors import CheckpointError

QUESTION_TYPE_IDS = {"choice": 0, "score": 1, "noul": 2}
# Outside these a fitted temperature is clamped, as upstream does at load.
MIN_TEMPERATURE, MAX_TEMPERATURE = 0.5, 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class EncoderConfig:
    """Dimensions of the ModernBERT encoder; `is_full` says per layer whether it sees everything."""

    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    intermediate_size: int
    vocab_size: int
    local_attention: int
    norm_eps: float
    is_full: tuple[bool, ...]
    full_theta: float
    local_theta: float

    @property
    def window(self) -> int:
        """Positions a local layer sees on either side."""
        return self.local_attention // 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Temperatures:
    """Divisors of the logits: by bucket, else by question type."""

    by_type: tuple[float, float, float] = (1.0, 1.0, 1.0)
    by_bucket: Mapping[str, float]

    def of(self, type: str, num_options: int) -> float:
        """The temperature of a question of `type` with that many options."""
        fallback = self.by_type[QUESTION_TYPE_IDS[type]]
        return self.by_bucket.get(bucket(type, num_options), fallback)


@dataclass(frozen=True, slots=True, kw_only=True)
class LayaConfig:
    """Everything a checkpoint says about itself."""

    encoder: EncoderConfig
    head_layers: int
    num_actions: int
    max_len: int
    head_max_len: int
    temperatures: Temperatures


def bucket(type: str, num_options: int) -> str:
    """The name under which a temperature or threshold for such questions is kept."""
    for limit, span in ((2, "2"), (5, "3-5"), (10, "6-10")):
        if num_options <= limit:
            return f"{type}:{span}"
    return f"{type}:11+"


def load_config(folder: Path) -> LayaConfig:
    """Read a checkpoint folder's configs; raises CheckpointError naming file, key and remedy."""
    file = folder / "rl_agent_config.json"
    head = _Fields(file)
    head.need("encoder")
    layout = head.values.get("option_layout", "sequential")
    if layout != "sequential":
        raise head.error("option_layout", layout, '"sequential", the layout of every published one')
    return LayaConfig(
        encoder=_load_encoder(folder / "encoder" / "config.json"),
        head_layers=head.integer("head_layers", minimum=0),
        num_actions=len(head.mapping("act_costs")) + 1,
        max_len=head.integer("max_len", default=512),
        head_max_len=head.integer("head_max_len", default=192),
        temperatures=_read_temperatures(head),
    )


def _read_temperatures(head: _Fields) -> Temperatures:
    by_type = head.values.get("temperature", [1.0, 1.0, 1.0])
    if not isinstance(by_type, list) or len(by_type) != 3:
        raise head.error("temperature", by_type, "a list of three numbers, one a question type")
    choice, score, noul = (_temperature(value) for value in by_type)
    by_bucket = head.mapping("temperature_by_options")
    return Temperatures(
        by_type=(choice, score, noul),
        by_bucket={name: _temperature(value) for name, value in by_bucket.items()},
    )


def _temperature(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return 1.0
    return min(MAX_TEMPERATURE, max(MIN_TEMPERATURE, float(value)))


def _load_encoder(file: Path) -> EncoderConfig:
    fields = _Fields(file)
    for name, expected in (
        ("hidden_activation", "gelu"),
        ("attention_bias", False),
        ("mlp_bias", False),
        ("norm_bias", False),
    ):
        if (found := fields.values.get(name, expected)) != expected:
            raise fields.error(name, found, json.dumps(expected))
    layers = fields.integer("num_hidden_layers")
    hidden, heads = fields.integer("hidden_size"), fields.integer("num_attention_heads")
    if hidden % heads or hidden // heads % 2:
        raise fields.error("num_attention_heads", heads, f"heads of equal, even size in {hidden}")
    full_theta, local_theta = _read_thetas(fields)
    return EncoderConfig(
        hidden_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=fields.integer("intermediate_size"),
        vocab_size=fields.integer("vocab_size"),
        local_attention=fields.integer("local_attention", default=128),
        norm_eps=fields.number("norm_eps", default=1e-5),
        is_full=_read_layer_kinds(fields, layers),
        full_theta=full_theta,
        local_theta=local_theta,
    )


def _read_layer_kinds(fields: _Fields, layers: int) -> tuple[bool, ...]:
    """`layer_types` wins over the older integer; every third layer where both are absent."""
    kinds = fields.values.get("layer_types")
    if kinds is None:
        every = fields.integer("global_attn_every_n_layers", default=3)
        return tuple(index % every == 0 for index in range(layers))
    known = {"full_attention": True, "sliding_attention": False}
    if not isinstance(kinds, list) or len(kinds) != layers or not set(kinds) <= set(known):
        raise fields.error("layer_types", kinds, f"{layers} of {' or '.join(known)}")
    return tuple(known[kind] for kind in kinds)


def _read_thetas(fields: _Fields) -> tuple[float, float]:
    """Rotary bases of full and local layers, in the old or the new spelling."""
    if "rope_parameters" not in fields.values:
        return (
            fields.number("global_rope_theta", default=160_000.0),
            fields.number("local_rope_theta", default=10_000.0),
        )
    thetas = []
    for kind in ("full_attention", "sliding_attention"):
        found = fields.mapping("rope_parameters").get(kind)
        entry: Mapping[str, Any] = found if isinstance(found, Mapping) else {}
        theta = entry.get("rope_theta")
        if isinstance(theta, bool) or not isinstance(theta, int | float) or theta <= 0:
            raise fields.error(f"rope_parameters.{kind}", found, 'an object with a "rope_theta"')
        if entry.get("rope_type", "default") != "default":
            raise fields.error(f"rope_parameters.{kind}", found, 'rope_type "default"')
        thetas.append(float(theta))
    return thetas[0], thetas[1]


class _Fields:
    """One JSON object from a file, with typed access and errors that name the file."""

    def __init__(self, file: Path) -> None:
        self.file = file
        if not file.is_file():
            raise CheckpointError(f"{file}: missing; a LAYA checkpoint folder holds it")
        try:
            self.values = json.loads(file.read_text(encoding="utf-8"))
        except ValueError as error:
            raise CheckpointError(f"{file}: not JSON: {error}; fetch the file again") from error
        if not isinstance(self.values, dict):
            raise CheckpointError(f"{file}: holds no JSON object; fetch the file again")

    def error(self, key: str, found: Any, expected: str) -> CheckpointError:
        return CheckpointError(
            f"{self.file}: {key} is {json.dumps(found)[:80]}, expected {expected}; "
            "use a checkpoint of this layout"
        )

    def need(self, key: str) -> Any:
        if key not in self.values:
            raise CheckpointError(f"{self.file}: key {key!r} is missing; fetch the file again")
        return self.values[key]

    def integer(self, key: str, default: int | None = None, minimum: int = 1) -> int:
        value = self.need(key) if default is None else self.values.get(key, default)
        if type(value) is not int or value < minimum:
            raise self.error(key, value, f"an integer of at least {minimum}")
        return value

    def number(self, key: str, default: float) -> float:
        value = self.values.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
            raise self.error(key, value, "a positive number")
        return float(value)

    def mapping(self, key: str) -> Mapping[str, Any]:
        value = self.values.get(key, {})
        if not isinstance(value, dict):
            raise self.error(key, value, "an object")
        return value
