"""What ends in FP8 against the reference: the rounding points of 16 bits, then one scale a row."""

import sys

import pytest
import torch
from cases import EPS, head_rows, vector

from system1_cuda.build import load_kernels
from system1_cuda.offered import OPS
from system1_torch.ops import gated_rms_norm, rms_norm, silu_mul
from system1_torch.ops.quantised_linear import FP8_MAX, QuantisedRows, quantise_rows
from system1_torch.testing import RAGGED, TOLERANCE, fresh_generator, poisoned, relative_error

pytestmark = pytest.mark.gpu
BF16 = torch.bfloat16
BATCHES = pytest.mark.parametrize("lengths", RAGGED.values(), ids=RAGGED)
KEEP = pytest.mark.parametrize("keep", [False, True], ids=["fp8-only", "both"])


@pytest.fixture(scope="module", autouse=True)
def _kernels():
    load_kernels()


@pytest.fixture(autouse=True)
def _only_kernels(monkeypatch):
    """Every call in this file must reach a kernel: a silent fallback would test nothing."""

    def refuse(*_):
        raise AssertionError("went to the reference")

    modules = {sys.modules[op.__module__] for op in OPS.values()}
    # A linear layer's other way is torch's own product, not a reference.
    for module in (module for module in modules if hasattr(module, "reference")):
        stand_in = type("Refuses", (), {"__getattr__": lambda self, name: refuse})()
        monkeypatch.setattr(module, "reference", stand_in)


@pytest.fixture
def generator():
    return fresh_generator()


def rows_of(count, width, generator, scale=1.0):
    return poisoned((count, width), generator=generator, dtype=BF16, device="cuda", scale=scale)


def assert_rows_are(found, exact, *, kept=None):
    """`found` is `exact` [T, K] float32 in 16 bits and then in FP8, and it says so of itself."""
    expected, expected_scales = quantise_rows(exact.to(BF16))
    assert found.dtype == BF16
    assert found.values.shape == expected.shape
    assert found.scales.shape == expected_scales.shape
    assert torch.isfinite(found.values.float()).all()
    # The kernel rounds to bfloat16 up to three times where `exact` does once.
    torch.testing.assert_close(found.scales, expected_scales, rtol=2**-5, atol=0)
    restored = found.values.float() * found.scales[:, None]
    # Half a unit of three bits: 1/16 of a value at most, about 1/40 in the mean of many.
    assert relative_error(restored, exact) < (0.035 if exact.shape[1] > 1000 else 2**-4)
    filled = found.scales > 1e-12
    largest = found.values.float().abs().amax(-1)
    assert (largest[filled] == FP8_MAX).all()
    if kept is None:
        assert found.source is None
        return
    assert relative_error(found.source, exact) < kept
    # What is kept and what is in FP8 are the same rows.
    values, scales = torch.ops.system1.quantise_rows.default(found.source)
    assert torch.equal(found.scales, scales)
    assert torch.equal(found.values.view(torch.uint8), values.view(torch.uint8))


def exactly(op, *inputs):
    return op(*(x.float() if isinstance(x, torch.Tensor) else x for x in inputs))


@KEEP
@BATCHES
@pytest.mark.parametrize("width", [8, 248, 2560, 5120, 8192])
def test_norms(lengths, width, keep, generator):
    x, residual = (rows_of(sum(lengths), width, generator) for _ in range(2))
    weight = vector(generator, width, BF16, "cuda") * 0.1
    before = x.clone(), residual.clone()
    kept = TOLERANCE[BF16] if keep else None
    found = OPS["rms_norm_quantised"](x, weight, EPS, 1.0, keep)
    assert_rows_are(found, exactly(rms_norm.rms_norm, x, weight, EPS, 1.0), kept=kept)
    found, total = OPS["add_rms_norm_quantised"](x, residual, weight, EPS, 1.0, keep)
    assert torch.equal(total, residual + x)
    assert_rows_are(found, exactly(rms_norm.rms_norm, total, weight, EPS, 1.0), kept=kept)
    assert torch.equal(x, before[0])
    assert torch.equal(residual, before[1])


@BATCHES
@pytest.mark.parametrize("width", [8, 1096, 8192, 8200, 9216, 17_408, 32_768])
def test_silu_mul(lengths, width, generator):
    x = rows_of(sum(lengths), 2 * width, generator, scale=3.0)
    assert_rows_are(OPS["silu_mul_quantised"](x), exactly(silu_mul.silu_mul, x))


@BATCHES
@pytest.mark.parametrize(
    ("heads", "width"), [(1, 64), (3, 64), (3, 128), (32, 128), (48, 128), (5, 256), (32, 256)]
)
def test_gated_rms_norm(lengths, heads, width, generator):
    x, gate = (
        head_rows(lengths, generator, BF16, "cuda", heads=heads, width=width) for _ in range(2)
    )
    weight = vector(generator, width, BF16, "cuda")
    found = OPS["gated_rms_norm_quantised"](x, gate, weight, EPS)
    exact = exactly(gated_rms_norm.gated_rms_norm, x, gate, weight, EPS).flatten(1)
    assert_rows_are(found, exact)


@pytest.mark.parametrize("rows", [1, 107, 936])
def test_fused_and_apart_give_the_same_bits(rows, generator):
    x, residual = (rows_of(rows, 5120, generator) for _ in range(2))
    weight = vector(generator, 5120, BF16, "cuda")
    normed, total = OPS["add_rms_norm"](x, residual, weight, EPS, 1.0)
    found, found_total = OPS["add_rms_norm_quantised"](x, residual, weight, EPS, 1.0, True)
    assert torch.equal(found.source, normed)
    assert torch.equal(found_total, total)
    gate_up = rows_of(rows, 2 * 17_408, generator, scale=3.0)
    heads, gate = (head_rows((rows,), generator, BF16, "cuda", heads=48, width=128) for _ in "xg")
    inputs = [heads, gate, vector(generator, 128, BF16, "cuda"), EPS]
    for rows_in_fp8, source in [
        (found, normed),
        (OPS["silu_mul_quantised"](gate_up), OPS["silu_mul"](gate_up)),
        (OPS["gated_rms_norm_quantised"](*inputs), OPS["gated_rms_norm"](*inputs).flatten(1)),
    ]:
        values, scales = torch.ops.system1.quantise_rows.default(source)
        assert torch.equal(rows_in_fp8.scales, scales)
        assert torch.equal(rows_in_fp8.values.view(torch.uint8), values.view(torch.uint8))


@pytest.mark.parametrize("width", [64, 5120, 17_408])
@pytest.mark.parametrize("size", [0.0, 1e-38, 1e-12, 1.0, 1e4, 3e38])
def test_rows_of_any_size_are_quantised_as_torch_does(width, size, generator):
    x = rows_of(3, width, generator).clamp(-1, 1) * size
    x[1] = 0
    values, scales = torch.ops.system1.quantise_rows.default(x)
    expected, expected_scales = quantise_rows(x)
    torch.testing.assert_close(scales, expected_scales, rtol=1e-6, atol=0)
    assert (values.float() != expected.float()).float().mean() < 0.03
    assert not values[1].float().any()


@pytest.mark.parametrize("size", [0.0, 1e-20, 1e18])
def test_extreme_rows_stay_finite(size, generator):
    gate_up = rows_of(3, 2 * 17_408, generator).clamp(-1, 1) * size
    found = OPS["silu_mul_quantised"](gate_up)
    exact = silu_mul.silu_mul(gate_up)
    assert torch.isfinite(exact).all()
    values, scales = quantise_rows(exact)
    torch.testing.assert_close(found.scales, scales, rtol=2**-5, atol=0)
    assert torch.isfinite(found.values.float()).all()
    assert (found.values.float() != values.float()).float().mean() < 0.03
    x = rows_of(3, 5120, generator).clamp(-1, 1) * size
    weight = torch.zeros(5120, dtype=BF16, device="cuda")
    normed = OPS["rms_norm_quantised"](x, weight, EPS, 1.0)
    assert torch.isfinite(normed.values.float()).all()
    assert torch.isfinite(normed.scales).all()


def test_a_row_does_not_depend_on_its_neighbours(generator):
    gate_up = rows_of(5, 2 * 9216, generator)
    whole = OPS["silu_mul_quantised"](gate_up)
    gate_up[:2] *= 100
    alone = OPS["silu_mul_quantised"](gate_up[2:])
    assert torch.equal(whole.values[2:].view(torch.uint8), alone.values.view(torch.uint8))
    assert torch.equal(whole.scales[2:], alone.scales)


def test_products_take_rows_quantised_before(generator):
    x = rows_of(107, 5120, generator)
    values, scales = quantise_rows(torch.randn(256, 5120, generator=generator).cuda())
    weight = torch.zeros(5120, dtype=BF16, device="cuda")
    rows = OPS["rms_norm_quantised"](x, weight, EPS, 1.0, True)
    found = OPS["quantised_linear"](rows, values, scales)
    assert torch.equal(found, OPS["quantised_linear"](rows.source, values, scales))
    places = torch.tensor([0, 5, 106], device="cuda")
    picked = OPS["quantised_linear"](rows[places], values, scales)
    assert relative_error(picked, found[places]) < TOLERANCE[BF16]


def test_a_graph_holds_the_fused_kernels(generator):
    gate_up = rows_of(40, 2 * 17_408, generator)
    x, residual = (rows_of(40, 5120, generator) for _ in range(2))
    weight = vector(generator, 5120, BF16, "cuda")

    def run() -> list[QuantisedRows]:
        normed, _ = OPS["add_rms_norm_quantised"](x, residual, weight, EPS, 1.0, True)
        return [normed, OPS["silu_mul_quantised"](gate_up)]

    run()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = run()
    for tensor in (gate_up, x, residual):
        tensor.normal_()
    graph.replay()
    for found, expected in zip(captured, run(), strict=True):
        assert torch.equal(found.values.view(torch.uint8), expected.values.view(torch.uint8))
        assert torch.equal(found.scales, expected.scales)
