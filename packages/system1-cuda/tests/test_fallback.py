"""What no kernel covers goes to the reference, never to a wrong answer."""

import pytest
import torch
from cases import (
    TREES,
    attention_inputs,
    delta_operands,
    head_rows,
    norm_inputs,
    norm_rope_inputs,
    rotary_inputs,
)

from system1_cuda.offered import OPS
from system1_torch.ops import (
    delta_inputs,
    gated_rms_norm,
    geglu,
    layer_norm,
    local_attention,
    norm_rope,
    rms_norm,
    rotary,
    silu_mul,
)
from system1_torch.testing import fresh_generator

LENGTHS = (5, 1, 12)
REFERENCES = {
    "add_rms_norm": rms_norm.add_rms_norm,
    "delta_inputs": delta_inputs.delta_inputs,
    "gated_rms_norm": gated_rms_norm.gated_rms_norm,
    "geglu": geglu.geglu,
    "layer_norm": layer_norm.layer_norm,
    "local_attention": local_attention.local_attention,
    "norm_rope": norm_rope.norm_rope,
    "residual_layer_norm": layer_norm.residual_layer_norm,
    "rms_norm": rms_norm.rms_norm,
    "rotary": rotary.rotary,
    "silu_mul": silu_mul.silu_mul,
}


def inputs_of(name, generator):
    dtype, device = torch.float32, "cpu"
    x, weight, bias, eps = norm_inputs(LENGTHS, generator, dtype, device)
    heads = head_rows(LENGTHS, generator, dtype, device)
    return {
        "add_rms_norm": [x, x * 2, weight, eps, 1.0],
        "delta_inputs": delta_operands(TREES["branches"], generator, dtype, device),
        "gated_rms_norm": [heads, heads * 2, weight[:64], eps],
        "geglu": [x],
        "layer_norm": [x, weight, bias, eps],
        "local_attention": attention_inputs(LENGTHS, 2, generator, dtype, device),
        "norm_rope": norm_rope_inputs(LENGTHS, generator, dtype, device),
        "residual_layer_norm": [x, x * 2, weight, bias, eps],
        "rms_norm": [x, weight, eps, 1.0],
        "rotary": rotary_inputs(LENGTHS, generator, dtype, device),
        "silu_mul": [x],
    }[name]


@pytest.mark.parametrize("name", OPS)
def test_cpu_tensors_go_to_the_reference(name):
    inputs = inputs_of(name, fresh_generator())
    found, expected = OPS[name](*inputs), REFERENCES[name](*inputs)
    for one, other in zip(*map(as_tuple, (found, expected)), strict=True):
        assert torch.equal(one, other)


def as_tuple(value):
    return value if isinstance(value, tuple) else (value,)


def test_a_negative_window_is_the_references_error():
    inputs = attention_inputs(LENGTHS, -1, fresh_generator(), torch.float32, "cpu")
    with pytest.raises(ValueError, match="window is -1"):
        OPS["local_attention"](*inputs)
