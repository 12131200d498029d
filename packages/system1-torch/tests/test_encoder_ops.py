"""The operations of bidirectional encoders against plain float64 arithmetic."""

import math

import pytest
import torch

from system1_torch.ops.geglu import geglu
from system1_torch.ops.layer_norm import layer_norm, residual_layer_norm
from system1_torch.ops.local_attention import local_attention
from system1_torch.ops.rotary import rotary
from system1_torch.testing import RAGGED, TOLERANCE, cu_seqlens_of, poisoned, relative_error

DTYPES = [torch.float32, torch.bfloat16]


@pytest.fixture
def generator():
    return torch.Generator().manual_seed(7)


def _normed(x, weight, bias):
    x = x.double()
    centred = x - x.mean(-1, keepdim=True)
    scaled = centred / (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt()
    return scaled * weight.double() + (0 if bias is None else bias.double())


def _attention(q, k, v, lengths, window):
    rows, start = [], 0
    for length in lengths:
        span = slice(start, start + length)
        start += length
        scores = torch.einsum("ihk,jhk->hij", q[span].double(), k[span].double())
        scores = scores / math.sqrt(q.shape[-1])
        if window is not None:
            positions = torch.arange(length)
            far = (positions[:, None] - positions).abs() > window
            scores = scores.masked_fill(far, -torch.inf)
        rows.append(torch.einsum("hij,jhk->ihk", scores.softmax(-1), v[span].double()))
    return torch.cat(rows)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("has_bias", [True, False], ids=["bias", "no-bias"])
def test_layer_norm_has_zero_mean_and_unit_variance_before_its_weight(generator, dtype, has_bias):
    x = poisoned((9, 96), generator=generator, dtype=dtype, scale=3.0)
    weight = torch.randn(96, generator=generator)
    bias = torch.randn(96, generator=generator) if has_bias else None
    found = layer_norm(x, weight, bias, 1e-5)
    assert found.dtype == dtype
    assert relative_error(found, _normed(x, weight, bias)) < TOLERANCE[dtype]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_residual_layer_norm_keeps_the_sum_in_the_residuals_dtype(generator, dtype):
    x = poisoned((9, 96), generator=generator, dtype=dtype)
    residual = poisoned((9, 96), generator=generator, dtype=torch.float32, scale=30.0)
    weight = torch.randn(96, generator=generator)
    normed, summed = residual_layer_norm(x, residual, weight, None, 1e-5)
    assert summed.dtype == torch.float32
    assert torch.equal(summed, residual + x.float())
    assert normed.dtype == dtype
    assert relative_error(normed, _normed(summed, weight, None)) < TOLERANCE[dtype]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_geglu_activates_the_first_half_with_the_exact_gelu(generator, dtype):
    x = poisoned((5, 64), generator=generator, dtype=dtype)
    first, second = x.double().chunk(2, -1)
    expected = first * 0.5 * (1 + torch.erf(first / math.sqrt(2))) * second
    assert relative_error(geglu(x), expected) < TOLERANCE[dtype]


def test_geglu_refuses_an_odd_width():
    with pytest.raises(ValueError, match="even"):
        geglu(torch.zeros(2, 5))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_rotary_turns_pairs_half_a_head_apart(generator, dtype):
    x = poisoned((6, 2, 16), generator=generator, dtype=dtype)
    angles = torch.rand(6, 8, generator=generator) * 6
    found = rotary(x, angles.cos(), angles.sin())
    turned = torch.complex(x[..., :8].double(), x[..., 8:].double())
    turned = turned * torch.polar(torch.ones(6, 1, 8).double(), angles[:, None].double())
    assert relative_error(found, torch.cat([turned.real, turned.imag], -1)) < TOLERANCE[dtype]


def test_rotary_leaves_the_dims_beyond_its_tables_alone(generator):
    x = poisoned((4, 2, 16), generator=generator, dtype=torch.float32)
    angles = torch.rand(4, 4, generator=generator)
    found = rotary(x, angles.cos(), angles.sin())
    assert torch.equal(found[..., 8:], x[..., 8:])
    assert relative_error(found[..., :8], rotary(x[..., :8], angles.cos(), angles.sin())) == 0


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("window", [None, 0, 1, 16, 64], ids=lambda w: f"window-{w}")
@pytest.mark.parametrize("lengths", RAGGED.values(), ids=RAGGED.keys())
def test_local_attention_stays_in_its_sequence_and_window(generator, lengths, window, dtype):
    shape = (sum(lengths), 2, 16)
    q, k, v = (poisoned(shape, generator=generator, dtype=dtype) for _ in range(3))
    found = local_attention(q, k, v, cu_seqlens_of(lengths), max(lengths), window)
    assert found.dtype == dtype
    assert relative_error(found, _attention(q, k, v, lengths, window)) < TOLERANCE[dtype]


def test_local_attention_refuses_a_negative_window():
    x = torch.zeros(2, 1, 4)
    with pytest.raises(ValueError, match="window"):
        local_attention(x, x, x, cu_seqlens_of((2,)), 2, -1)
