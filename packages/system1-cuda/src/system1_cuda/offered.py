"""What the backend offers, by the name of the reference it replaces."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from system1_cuda.delta_inputs import delta_inputs
from system1_cuda.gated_rms_norm import gated_rms_norm, gated_rms_norm_quantised
from system1_cuda.gated_tree_attention import gated_tree_attention
from system1_cuda.geglu import geglu
from system1_cuda.image_attention import image_attention
from system1_cuda.image_patches import image_patches
from system1_cuda.layer_norm import layer_norm, residual_layer_norm
from system1_cuda.linear import linear, tune_linear
from system1_cuda.linear_gelu import linear_gelu
from system1_cuda.local_attention import local_attention
from system1_cuda.log_sum_exp import log_sum_exp
from system1_cuda.norm_rope import norm_rope
from system1_cuda.quantised_linear import quantised_linear
from system1_cuda.rms_norm import (
    add_rms_norm,
    add_rms_norm_quantised,
    rms_norm,
    rms_norm_quantised,
)
from system1_cuda.rotary import rotary
from system1_cuda.silu_mul import silu_mul, silu_mul_quantised
from system1_cuda.tree_delta_rule import tree_delta_rule

OPS: Mapping[str, Callable[..., Any]] = MappingProxyType(
    {
        "add_rms_norm": add_rms_norm,
        "add_rms_norm_quantised": add_rms_norm_quantised,
        "delta_inputs": delta_inputs,
        "gated_rms_norm": gated_rms_norm,
        "gated_rms_norm_quantised": gated_rms_norm_quantised,
        "gated_tree_attention": gated_tree_attention,
        "geglu": geglu,
        "image_attention": image_attention,
        "image_patches": image_patches,
        "layer_norm": layer_norm,
        "linear": linear,
        "linear_gelu": linear_gelu,
        "local_attention": local_attention,
        "log_sum_exp": log_sum_exp,
        "norm_rope": norm_rope,
        "quantised_linear": quantised_linear,
        "residual_layer_norm": residual_layer_norm,
        "rms_norm": rms_norm,
        "rms_norm_quantised": rms_norm_quantised,
        "rotary": rotary,
        "silu_mul": silu_mul,
        "silu_mul_quantised": silu_mul_quantised,
        "tree_delta_rule": tree_delta_rule,
        "tune_linear": tune_linear,
    }
)
