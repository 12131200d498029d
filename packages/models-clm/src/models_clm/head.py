"""The two projection heads: states and candidates into one space, where cosines decide."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

# Published heads are 1536 wide and 3 deep; what lies beyond these is a damaged file.
MAX_WIDTH = 65_536
MAX_DEPTH = 64
MAX_SCALE = 100.0
LAYER_NORM_EPS = 1e-5
DEFAULT_HIDDEN_SIZE = 4_096
DEFAULT_PROJECTION_DIM = 512

ACTIVATIONS: Mapping[str, Callable[[Tensor], Tensor]] = {
    "gelu": functional.gelu,
    "relu": functional.relu,
    "silu": functional.silu,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadConfig:
    """Sizes of a pair of heads; `depth` counts the linear layers of each."""

    width: int
    depth: int
    hidden_size: int = DEFAULT_HIDDEN_SIZE
    projection_dim: int = DEFAULT_PROJECTION_DIM
    activation: str = "gelu"
    layernorm: bool = False
    residual: bool = False

    def __post_init__(self) -> None:
        for name in ("width", "hidden_size", "projection_dim"):
            _check_count(name, getattr(self, name), 1, MAX_WIDTH)
        _check_count("depth", self.depth, 2, MAX_DEPTH)
        if self.activation not in ACTIVATIONS:
            known = ", ".join(ACTIVATIONS)
            raise ValueError(f"cfg.activation is {self.activation!r}, expected one of {known}")
        for name in ("layernorm", "residual"):
            if not isinstance(getattr(self, name), bool):
                raise ValueError(f"cfg.{name} is {getattr(self, name)!r}, expected true or false")

    @classmethod
    def of(cls, cfg: Any, projection_dim: Any = None) -> HeadConfig:
        """From a checkpoint's `cfg`; `projection_dim` outside it wins.

        Raises ValueError naming what is missing or out of range.
        """
        if not isinstance(cfg, Mapping):
            raise ValueError(f"cfg is a {type(cfg).__name__}, expected an object")
        missing = [name for name in ("width", "depth") if name not in cfg]
        if missing:
            raise ValueError(f"cfg lacks {' and '.join(missing)}")
        known = {name: cfg[name] for name in cls.__slots__ if cfg.get(name) is not None}
        if projection_dim is not None:
            known["projection_dim"] = projection_dim
        return cls(**known)


class ProjectionHead(nn.Module):
    """An MLP over unit embeddings; its outputs have unit length as well."""

    def __init__(self, config: HeadConfig) -> None:
        super().__init__()
        width, blocks = config.width, range(config.depth - 2)
        self.inp = nn.Linear(config.hidden_size, width)
        self.hidden = nn.ModuleList(nn.Linear(width, width) for _ in blocks)
        if config.layernorm:
            self.norms = nn.ModuleList(nn.LayerNorm(width, LAYER_NORM_EPS) for _ in blocks)
        self.out = nn.Linear(width, config.projection_dim)
        self._config = config
        self._activation = ACTIVATIONS[config.activation]

    def forward(self, embeddings: Tensor) -> Tensor:
        """Shapes: embeddings [N, H] of any length, returns [N, P]; float32."""
        x = self._activation(self.inp(functional.normalize(embeddings, dim=-1)))
        for index, linear in enumerate(self.hidden):
            h = linear(x)
            if self._config.layernorm:
                h = self.norms[index](h)
            h = self._activation(h)
            x = x + h if self._config.residual else h
        return functional.normalize(self.out(x), dim=-1)


class DualHead(nn.Module):
    """State and action head; weight names are the checkpoint's."""

    def __init__(self, config: HeadConfig) -> None:
        super().__init__()
        self.state_head = ProjectionHead(config)
        self.action_head = ProjectionHead(config)
        self.hidden_size = config.hidden_size


def scale_of(logit_scale: float) -> float:
    """What cosines are multiplied with: exp in float32, at most 100.

    Raises ValueError if `logit_scale` is not finite.
    """
    if not math.isfinite(logit_scale):
        raise ValueError(f"logit_scale is {logit_scale}, expected a finite number")
    return float(torch.tensor(logit_scale, dtype=torch.float32).exp().clamp(max=MAX_SCALE))


def _check_count(name: str, value: Any, least: int, most: int) -> None:
    if type(value) is not int or not least <= value <= most:
        raise ValueError(f"cfg.{name} is {value!r}, expected {least} to {most}")
