"""Each kernel against its reference in float32, on ragged batches of fresh values."""

import sys

import pytest
import torch
from cases import (
    EPS,
    TREES,
    attention_inputs,
    delta_operands,
    head_rows,
    norm_inputs,
    norm_rope_inputs,
    rotary_inputs,
    vector,
)

from system1_cuda.build import load_kernels
from system1_cuda.offered import OPS
from system1_torch.ops import layer_norm as layer_norms
from system1_torch.ops import rms_norm as rms_norms
from system1_torch.ops.delta_inputs import delta_inputs
from system1_torch.ops.gated_rms_norm import gated_rms_norm
from system1_torch.ops.geglu import geglu
from system1_torch.ops.local_attention import local_attention
from system1_torch.ops.norm_rope import norm_rope
from system1_torch.ops.rotary import rotary
from system1_torch.ops.silu_mul import silu_mul
from system1_torch.testing import RAGGED, TOLERANCE, check_kernel, fresh_generator, poisoned

pytestmark = pytest.mark.gpu
DEVICE = "cuda"
BATCHES = pytest.mark.parametrize("lengths", RAGGED.values(), ids=RAGGED)
DTYPE_NAMES = ["float32", "float16", "bfloat16"]
DTYPES = pytest.mark.parametrize("dtype", [getattr(torch, n) for n in DTYPE_NAMES], ids=DTYPE_NAMES)
# Weights of a row's softmax are rounded to 16 bits before they meet the values.
ATTENTION_TOLERANCE = {torch.float32: 2e-6, torch.float16: 2e-3, torch.bfloat16: 1e-2}


@pytest.fixture(scope="module", autouse=True)
def _kernels():
    load_kernels()


@pytest.fixture
def generator():
    return fresh_generator()


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


def check(name, reference, inputs, generator, tolerance=None):
    torch.cuda.synchronize()
    error = check_kernel(OPS[name], reference, inputs, generator=generator, tolerance=tolerance)
    torch.cuda.synchronize()
    return error


@DTYPES
@BATCHES
@pytest.mark.parametrize("has_bias", [False, True])
@pytest.mark.parametrize("wide", [False, True])
def test_layer_norm(lengths, dtype, has_bias, wide, generator):
    inputs = norm_inputs(lengths, generator, dtype, DEVICE, wide=wide, has_bias=has_bias)
    check("layer_norm", layer_norms.layer_norm, inputs, generator)


@DTYPES
@pytest.mark.parametrize("width", [8, 64, 248, 256, 264, 768, 1024, 2560, 5120, 8192])
def test_norms_of_any_width(width, dtype, generator):
    x, weight, bias, eps = norm_inputs((3,), generator, dtype, DEVICE, width=width)
    check("layer_norm", layer_norms.layer_norm, [x, weight, bias, eps], generator)
    check("rms_norm", rms_norms.rms_norm, [x, weight, eps, 1.0], generator)


@DTYPES
def test_layer_norm_of_values_far_from_zero(dtype, generator):
    x, weight, bias, eps = norm_inputs((17,), generator, torch.float32, DEVICE, width=1024)
    x = (x + 30.0).to(dtype)
    check("layer_norm", layer_norms.layer_norm, [x, weight, bias, eps], generator)


@DTYPES
@BATCHES
@pytest.mark.parametrize("wide", [False, True])
def test_residual_layer_norm(lengths, dtype, wide, generator):
    x, *rest = norm_inputs(lengths, generator, dtype, DEVICE, wide=wide)
    residual_dtype = torch.float32 if wide else dtype
    residual = poisoned(x.shape, generator=generator, dtype=residual_dtype, device=DEVICE)
    inputs = [x, residual, *rest]
    check("residual_layer_norm", layer_norms.residual_layer_norm, inputs, generator)


@DTYPES
@BATCHES
@pytest.mark.parametrize("offset", [0.0, 1.0])
def test_rms_norm(lengths, dtype, offset, generator):
    x, weight, _, eps = norm_inputs(lengths, generator, dtype, DEVICE)
    check("rms_norm", rms_norms.rms_norm, [x, weight, eps, offset], generator)


@DTYPES
@BATCHES
@pytest.mark.parametrize("wide", [False, True])
def test_add_rms_norm(lengths, dtype, wide, generator):
    x, weight, _, eps = norm_inputs(lengths, generator, dtype, DEVICE)
    residual_dtype = torch.float32 if wide else dtype
    residual = poisoned(x.shape, generator=generator, dtype=residual_dtype, device=DEVICE)
    check("add_rms_norm", rms_norms.add_rms_norm, [x, residual, weight, eps, 1.0], generator)


@DTYPES
@BATCHES
@pytest.mark.parametrize("width", [64, 128, 256])
def test_gated_rms_norm(lengths, dtype, width, generator):
    x, gate = (head_rows(lengths, generator, dtype, DEVICE, width=width) for _ in range(2))
    weight = vector(generator, width, dtype, DEVICE)
    check(
        "gated_rms_norm", gated_rms_norm, [x, gate, weight, EPS], generator, 1.5 * TOLERANCE[dtype]
    )


@DTYPES
@BATCHES
@pytest.mark.parametrize("width", [8, 2624])
def test_geglu(lengths, dtype, width, generator):
    shape = (sum(lengths), 2 * width)
    x = poisoned(shape, generator=generator, dtype=dtype, device=DEVICE, scale=3.0)
    check("geglu", geglu, [x], generator)


@DTYPES
@BATCHES
@pytest.mark.parametrize("width", [8, 1096])
def test_silu_mul(lengths, dtype, width, generator):
    shape = (sum(lengths), 2 * width)
    x = poisoned(shape, generator=generator, dtype=dtype, device=DEVICE, scale=3.0)
    check("silu_mul", silu_mul, [x], generator)


@DTYPES
@BATCHES
@pytest.mark.parametrize(("width", "half"), [(64, 32), (72, 8), (256, 32)])
def test_rotary(lengths, dtype, width, half, generator):
    inputs = rotary_inputs(lengths, generator, dtype, DEVICE, width=width, half=half)
    check("rotary", rotary, inputs, generator)


@DTYPES
@BATCHES
@pytest.mark.parametrize(("width", "turned"), [(64, 16), (64, 64), (128, 32), (256, 64)])
def test_norm_rope(lengths, dtype, width, turned, generator):
    inputs = norm_rope_inputs(lengths, generator, dtype, DEVICE, width=width, turned=turned)
    check("norm_rope", norm_rope, inputs, generator, 1.5 * TOLERANCE[dtype])


@DTYPES
@pytest.mark.parametrize("tree", TREES.values(), ids=TREES)
@pytest.mark.parametrize(("width", "heads"), [(64, (2, 4)), (128, (1, 3)), (128, (16, 48))])
def test_delta_inputs(tree, dtype, width, heads, generator):
    inputs = delta_operands(
        tree, generator, dtype, DEVICE, width=width, key_heads=heads[0], value_heads=heads[1]
    )
    check("delta_inputs", delta_inputs, inputs, generator, 1.5 * TOLERANCE[dtype])


@DTYPES
@BATCHES
@pytest.mark.parametrize("window", [None, 0, 1, 64, 100])
def test_local_attention(lengths, dtype, window, generator):
    inputs = attention_inputs(lengths, window, generator, dtype, DEVICE)
    check("local_attention", local_attention, inputs, generator, ATTENTION_TOLERANCE[dtype])


@DTYPES
@pytest.mark.parametrize("window", [None, 64])
def test_local_attention_of_many_long_sequences(dtype, window, generator):
    lengths = [1025, 3, 512, 700, 64, 999] * 2
    inputs = attention_inputs(lengths, window, generator, dtype, DEVICE, heads=8)
    check("local_attention", local_attention, inputs, generator, ATTENTION_TOLERANCE[dtype])


@DTYPES
def test_a_long_lone_sequence_is_left_to_torch(dtype, generator):
    inputs = attention_inputs((900,), None, generator, dtype, DEVICE)
    with pytest.raises(AssertionError, match="went to the reference"):
        OPS["local_attention"](*inputs)


@DTYPES
def test_a_graph_holds_the_kernel_however_long_the_sequence(dtype, generator):
    inputs = attention_inputs((900,), None, generator, dtype, DEVICE)

    def captured(*inputs):
        torch.ops.system1.local_attention(*inputs[:-1], -1)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = OPS["local_attention"](*inputs)
        graph.replay()
        return out

    tolerance = ATTENTION_TOLERANCE[dtype]
    check_kernel(captured, local_attention, inputs, generator=generator, tolerance=tolerance)


@DTYPES
def test_rows_beyond_the_last_sequence_are_not_attended(dtype, generator):
    inputs = attention_inputs((40, 24), None, generator, dtype, DEVICE)
    alone = OPS["local_attention"](*inputs)[:40]
    cut = torch.tensor([0, 40], dtype=torch.int32, device=DEVICE)
    assert torch.equal(OPS["local_attention"](*inputs[:3], cut, 64, None)[:40], alone)


@DTYPES
def test_local_attention_with_large_scores(dtype, generator):
    inputs = attention_inputs((130, 70), None, generator, dtype, DEVICE)
    inputs[0] = inputs[0] * 30
    check("local_attention", local_attention, inputs, generator, 2 * ATTENTION_TOLERANCE[dtype])


def test_a_window_over_the_whole_sequence_is_full_attention(generator):
    inputs = attention_inputs((90, 50), 10**9, generator, torch.bfloat16, DEVICE)
    full = OPS["local_attention"](*inputs[:-1], None)
    assert torch.equal(OPS["local_attention"](*inputs), full)


def test_a_sequence_does_not_depend_on_its_neighbours(generator):
    inputs = attention_inputs((90, 50, 300), 64, generator, torch.bfloat16, DEVICE)
    together = OPS["local_attention"](*inputs)[90:140]
    q, k, v = (x[90:140] for x in inputs[:3])
    cu_seqlens = torch.tensor([0, 50], dtype=torch.int32, device=DEVICE)
    assert torch.equal(OPS["local_attention"](q, k, v, cu_seqlens, 50, 64), together)


def test_kernels_can_be_captured_in_a_graph(generator):
    x, weight, bias, eps = norm_inputs((48,), generator, torch.bfloat16, DEVICE, width=128)
    attention = attention_inputs((40, 8), 64, generator, torch.bfloat16, DEVICE)

    def run():
        normed = OPS["layer_norm"](x, weight, bias, eps)
        return OPS["geglu"](normed), OPS["local_attention"](*attention)

    eager = run()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = run()
    x.copy_(x * 2)
    graph.replay()
    expected = run()
    assert not torch.equal(captured[0], eager[0])
    for one, other in zip(captured, expected, strict=True):
        assert torch.equal(one, other)
