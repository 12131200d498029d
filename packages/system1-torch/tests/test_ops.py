"""Each reference against an independent way to compute the same thing."""

import pytest
import torch
import torch.nn.functional as F

from system1_torch.ops.gated_rms_norm import gated_rms_norm, gated_rms_norm_quantised
from system1_torch.ops.log_sum_exp import log_sum_exp
from system1_torch.ops.quantised_linear import QuantisedRows, quantise_rows, quantised_linear
from system1_torch.ops.rms_norm import (
    add_rms_norm,
    add_rms_norm_quantised,
    rms_norm,
    rms_norm_quantised,
)
from system1_torch.ops.silu_mul import silu_mul, silu_mul_quantised
from system1_torch.testing import relative_error

EPS = 1e-6


def test_rms_norm_agrees_with_torch():
    x, weight = torch.randn(5, 32), torch.randn(32)
    assert relative_error(rms_norm(x, weight, EPS), F.rms_norm(x, (32,), weight, EPS)) < 1e-6


def test_rms_norm_with_offset_multiplies_by_one_plus_weight():
    x, weight = torch.randn(5, 32), torch.randn(32)
    expected = F.rms_norm(x, (32,), 1 + weight, EPS)
    assert relative_error(rms_norm(x, weight, EPS, offset=1.0), expected) < 1e-6


def test_rms_norm_rounds_once_in_bfloat16():
    x, weight = torch.randn(5, 32).bfloat16(), torch.randn(32).bfloat16()
    expected = rms_norm(x.float(), weight.float(), EPS).bfloat16()
    assert torch.equal(rms_norm(x, weight, EPS), expected)


def test_add_rms_norm_reads_the_rounded_sum_and_changes_nothing():
    x, residual = torch.randn(5, 32).bfloat16(), torch.randn(5, 32).bfloat16()
    weight, old = torch.randn(32), residual.clone()
    normed, total = add_rms_norm(x, residual, weight, EPS)
    assert torch.equal(total, residual + x)
    assert torch.equal(normed, rms_norm(residual + x, weight, EPS))
    assert torch.equal(residual, old)


def test_gated_rms_norm_is_norm_times_weight_times_silu_of_the_gate():
    x, gate, weight = torch.randn(3, 4, 16), torch.randn(3, 4, 16), torch.randn(16)
    expected = F.rms_norm(x, (16,), weight, EPS) * F.silu(gate)
    assert relative_error(gated_rms_norm(x, gate, weight, EPS), expected) < 1e-6


def test_silu_mul_gates_with_the_first_half():
    gate, up = torch.randn(5, 7), torch.randn(5, 7)
    assert torch.equal(silu_mul(torch.cat([gate, up], -1)), F.silu(gate) * up)


@pytest.mark.parametrize("chunk_rows", [1, 7, 100])
def test_log_sum_exp_does_not_depend_on_the_chunk(chunk_rows):
    hidden, weight = torch.randn(3, 8), torch.randn(50, 8) * 20
    expected = torch.logsumexp((hidden @ weight.T).double(), -1)
    assert relative_error(log_sum_exp(hidden, weight, chunk_rows), expected) < 1e-6


def test_quantised_rows_keep_their_largest_value_and_zeros():
    x = torch.randn(4, 64) * torch.tensor([1e-3, 1.0, 300.0, 0.0])[:, None]
    values, scales = quantise_rows(x)
    restored = values.float() * scales[:, None]
    assert torch.isfinite(restored).all()
    assert relative_error(restored, x) < 0.05
    assert torch.equal(restored[3], torch.zeros(64))
    assert torch.allclose(restored.abs().amax(-1)[:3], x.abs().amax(-1)[:3])


def test_quantised_linear_stays_near_the_exact_product():
    x, weight = torch.randn(6, 256), torch.randn(10, 256)
    found = quantised_linear(x, *quantise_rows(weight))
    # FP8 E4M3 has 3 mantissa bits: 2**-4 at most for each factor, averaged over the sum.
    assert relative_error(found, x @ weight.T) < 0.07


def test_rows_quantised_before_give_the_same_product():
    x, weight = torch.randn(6, 32).bfloat16(), torch.randn(10, 32)
    values, scales = quantise_rows(weight)
    found = quantised_linear(QuantisedRows.of(x), values, scales)
    assert found.dtype == torch.bfloat16
    assert torch.equal(found, quantised_linear(x, values, scales))


def test_picked_rows_are_those_of_the_picked_source():
    x, places = torch.randn(6, 32), torch.tensor([1, 4, 5])
    assert_rows_are(QuantisedRows.of(x, keep=True)[places], x[places], keep=True)
    assert QuantisedRows.of(x)[places].source is None


@pytest.mark.parametrize("keep", [False, True])
def test_quantised_norms_quantise_the_rounded_norm(keep):
    x, residual = torch.randn(5, 32).bfloat16(), torch.randn(5, 32).bfloat16()
    weight = torch.randn(32)
    found = rms_norm_quantised(x, weight, EPS, 1.0, keep)
    assert_rows_are(found, rms_norm(x, weight, EPS, 1.0), keep)
    found, total = add_rms_norm_quantised(x, residual, weight, EPS, 1.0, keep)
    normed, expected_total = add_rms_norm(x, residual, weight, EPS, 1.0)
    assert_rows_are(found, normed, keep)
    assert torch.equal(total, expected_total)


def test_a_quantised_gate_quantises_the_rounded_product():
    x = torch.randn(5, 32).bfloat16()
    assert_rows_are(silu_mul_quantised(x), silu_mul(x))


def test_a_token_has_one_scale_for_all_its_heads():
    x, gate, weight = torch.randn(3, 4, 16), torch.randn(3, 4, 16), torch.randn(16)
    found = gated_rms_norm_quantised(x, gate, weight, EPS)
    assert_rows_are(found, gated_rms_norm(x, gate, weight, EPS).view(3, 64))


def assert_rows_are(found, source, keep=False):
    values, scales = quantise_rows(source)
    assert torch.equal(found.values.float(), values.float())
    assert torch.equal(found.scales, scales)
    assert found.dtype == source.dtype
    if keep:
        assert torch.equal(found.source, source)
    else:
        assert found.source is None
