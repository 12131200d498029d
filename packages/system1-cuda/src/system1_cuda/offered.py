"""What the backend offers, by the name of the reference it replaces."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from system1_cuda.delta_inputs import delta_inputs
from system1_cuda.gated_rms_norm import gated_rms_norm
from system1_cuda.geglu import geglu
from system1_cuda.layer_norm import layer_norm, residual_layer_norm
from system1_cuda.local_attention import local_attention
from system1_cuda.norm_rope import norm_rope
from system1_cuda.rms_norm import add_rms_norm, rms_norm
from system1_cuda.rotary import rotary
from system1_cuda.silu_mul import silu_mul

OPS: Mapping[str, Callable[..., Any]] = MappingProxyType(
    {
        "add_rms_norm": add_rms_norm,
        "delta_inputs": delta_inputs,
        "gated_rms_norm": gated_rms_norm,
        "geglu": geglu,
        "layer_norm": layer_norm,
        "local_attention": local_attention,
        "norm_rope": norm_rope,
        "residual_layer_norm": residual_layer_norm,
        "rms_norm": rms_norm,
        "rotary": rotary,
        "silu_mul": silu_mul,
    }
)
