"""The operations LAYA calls: plain torch, unless the backend brings its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from torch import Tensor

from system1_torch.ops.geglu import geglu
from system1_torch.ops.layer_norm import layer_norm, residual_layer_norm
from system1_torch.ops.local_attention import local_attention
from system1_torch.ops.rotary import rotary


@dataclass(frozen=True, slots=True, kw_only=True)
class LayaOps:
    """Filled once at load, called directly afterwards; signatures are those of the references."""

    layer_norm: Callable[..., Tensor] = layer_norm
    residual_layer_norm: Callable[..., tuple[Tensor, Tensor]] = residual_layer_norm
    geglu: Callable[[Tensor], Tensor] = geglu
    local_attention: Callable[..., Tensor] = local_attention
    rotary: Callable[..., Tensor] = rotary

    @classmethod
    def of(cls, offered: Mapping[str, Callable[..., Any]]) -> LayaOps:
        """The references, replaced by what a backend offers under the same names."""
        names = {field.name for field in fields(cls)}
        return cls(**{name: op for name, op in offered.items() if name in names})
