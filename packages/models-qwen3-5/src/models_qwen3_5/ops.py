"""The operations the backbone calls, each a reference until a backend replaces it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

import torch.nn.functional as F

from system1_core.backend import Backend
from system1_torch.ops.delta_inputs import delta_inputs
from system1_torch.ops.gated_rms_norm import gated_rms_norm, gated_rms_norm_quantised
from system1_torch.ops.gated_tree_attention import gated_tree_attention
from system1_torch.ops.image_attention import image_attention
from system1_torch.ops.image_patches import image_patches
from system1_torch.ops.layer_norm import layer_norm, residual_layer_norm
from system1_torch.ops.linear_gelu import linear_gelu
from system1_torch.ops.log_sum_exp import log_sum_exp
from system1_torch.ops.norm_rope import norm_rope
from system1_torch.ops.quantised_linear import quantised_linear
from system1_torch.ops.rms_norm import (
    add_rms_norm,
    add_rms_norm_quantised,
    rms_norm,
    rms_norm_quantised,
)
from system1_torch.ops.rotary import rotary
from system1_torch.ops.silu_mul import silu_mul, silu_mul_quantised
from system1_torch.ops.tree_delta_rule import tree_delta_rule

Op = Callable[..., Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ops:
    """Filled once at load; a backend offers replacements under these names."""

    linear: Op = F.linear
    quantised_linear: Op = quantised_linear
    rms_norm: Op = rms_norm
    add_rms_norm: Op = add_rms_norm
    norm_rope: Op = norm_rope
    gated_tree_attention: Op = gated_tree_attention
    delta_inputs: Op = delta_inputs
    tree_delta_rule: Op = tree_delta_rule
    gated_rms_norm: Op = gated_rms_norm
    silu_mul: Op = silu_mul
    log_sum_exp: Op = log_sum_exp
    # What stands before a product in FP8.
    rms_norm_quantised: Op = rms_norm_quantised
    add_rms_norm_quantised: Op = add_rms_norm_quantised
    gated_rms_norm_quantised: Op = gated_rms_norm_quantised
    silu_mul_quantised: Op = silu_mul_quantised
    # The vision tower's.
    image_patches: Op = image_patches
    image_attention: Op = image_attention
    layer_norm: Op = layer_norm
    residual_layer_norm: Op = residual_layer_norm
    linear_gelu: Op = linear_gelu
    rotary: Op = rotary
    # Chooses how to multiply by projections at row counts; none: `linear` needs no choice.
    tune_linear: Op | None = None


def ops_of(backend: Backend) -> Ops:
    """The references, with what the backend offers under the same names."""
    names = {field.name for field in fields(Ops)}
    return Ops(**{name: op for name, op in backend.ops.items() if name in names})


def takes_pixels(backend: Backend) -> bool:
    """Whether the device resizes images itself, so that the host need not."""
    return "image_patches" in backend.ops
