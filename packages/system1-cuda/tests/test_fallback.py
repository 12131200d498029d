"""What no kernel covers goes to the reference, never to a wrong answer."""

import pytest
import torch
import torch.nn.functional as F
from cases import (
    TREES,
    attention_inputs,
    delta_operands,
    head_rows,
    image_attention_inputs,
    linear_gelu_inputs,
    norm_inputs,
    norm_rope_inputs,
    pixels_of,
    rotary_inputs,
    rule_inputs,
    tree_attention_inputs,
)

from system1_cuda.offered import OPS
from system1_torch.ops import (
    delta_inputs,
    gated_rms_norm,
    gated_tree_attention,
    geglu,
    image_attention,
    image_patches,
    layer_norm,
    linear_gelu,
    local_attention,
    log_sum_exp,
    norm_rope,
    quantised_linear,
    rms_norm,
    rotary,
    silu_mul,
    tree_delta_rule,
)
from system1_torch.testing import fresh_generator

LENGTHS = (5, 1, 12)
REFERENCES = {
    "add_rms_norm": rms_norm.add_rms_norm,
    "add_rms_norm_quantised": rms_norm.add_rms_norm_quantised,
    "delta_inputs": delta_inputs.delta_inputs,
    "gated_rms_norm": gated_rms_norm.gated_rms_norm,
    "gated_rms_norm_quantised": gated_rms_norm.gated_rms_norm_quantised,
    "gated_tree_attention": gated_tree_attention.gated_tree_attention,
    "geglu": geglu.geglu,
    "image_attention": image_attention.image_attention,
    "image_patches": image_patches.image_patches,
    "layer_norm": layer_norm.layer_norm,
    "linear": F.linear,
    "linear_gelu": linear_gelu.linear_gelu,
    "local_attention": local_attention.local_attention,
    "log_sum_exp": log_sum_exp.log_sum_exp,
    "norm_rope": norm_rope.norm_rope,
    "quantised_linear": quantised_linear.quantised_linear,
    "residual_layer_norm": layer_norm.residual_layer_norm,
    "rms_norm": rms_norm.rms_norm,
    "rms_norm_quantised": rms_norm.rms_norm_quantised,
    "rotary": rotary.rotary,
    "silu_mul": silu_mul.silu_mul,
    "silu_mul_quantised": silu_mul.silu_mul_quantised,
    "tree_delta_rule": tree_delta_rule.tree_delta_rule,
}


def inputs_of(name, generator):
    dtype, device = torch.float32, "cpu"
    x, weight, bias, eps = norm_inputs(LENGTHS, generator, dtype, device)
    heads = head_rows(LENGTHS, generator, dtype, device)
    return {
        "add_rms_norm": [x, x * 2, weight, eps, 1.0],
        "add_rms_norm_quantised": [x, x * 2, weight, eps, 1.0, True],
        "delta_inputs": delta_operands(TREES["branches"], generator, dtype, device),
        "gated_rms_norm": [heads, heads * 2, weight[:64], eps],
        "gated_rms_norm_quantised": [heads, heads * 2, weight[:64], eps],
        "gated_tree_attention": tree_attention_inputs(TREES["branches"], generator, dtype, device),
        "geglu": [x],
        "image_attention": image_attention_inputs(LENGTHS, generator, dtype, device),
        "image_patches": [pixels_of(40, 70, generator), 64, 96, 16, 2],
        "layer_norm": [x, weight, bias, eps],
        "linear": linear_gelu_inputs(LENGTHS, generator, dtype, device),
        "linear_gelu": linear_gelu_inputs(LENGTHS, generator, dtype, device),
        "local_attention": attention_inputs(LENGTHS, 2, generator, dtype, device),
        "log_sum_exp": [x, x * 2],
        "norm_rope": norm_rope_inputs(LENGTHS, generator, dtype, device),
        "quantised_linear": [x, *quantised_linear.quantise_rows(x)],
        "residual_layer_norm": [x, x * 2, weight, bias, eps],
        "rms_norm": [x, weight, eps, 1.0],
        "rms_norm_quantised": [x, weight, eps, 1.0],
        "rotary": rotary_inputs(LENGTHS, generator, dtype, device),
        "silu_mul": [x],
        "silu_mul_quantised": [x],
        "tree_delta_rule": rule_inputs(TREES["branches"], generator, dtype, device),
    }[name]


@pytest.mark.parametrize("name", REFERENCES)
def test_cpu_tensors_go_to_the_reference(name):
    inputs = inputs_of(name, fresh_generator())
    found, expected = OPS[name](*inputs), REFERENCES[name](*inputs)
    for one, other in zip(*map(tensors_of, (found, expected)), strict=True):
        assert torch.equal(one, other)


def test_rows_quantised_before_go_to_the_reference_too():
    x = torch.randn(5, 96)
    rows = quantised_linear.QuantisedRows.of(x)
    weight = quantised_linear.quantise_rows(torch.randn(7, 96))
    found = OPS["quantised_linear"](rows, *weight)
    assert torch.equal(found, quantised_linear.quantised_linear(x, *weight))


def tensors_of(value):
    if isinstance(value, tuple):
        return [tensor for part in value for tensor in tensors_of(part)]
    if isinstance(value, quantised_linear.QuantisedRows):
        kept = [] if value.source is None else [value.source]
        return [value.values.view(torch.uint8), value.scales, *kept]
    return [value]


def test_a_negative_window_is_the_references_error():
    inputs = attention_inputs(LENGTHS, -1, fresh_generator(), torch.float32, "cpu")
    with pytest.raises(ValueError, match="window is -1"):
        OPS["local_attention"](*inputs)
