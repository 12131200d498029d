"""`--dtype fp8` on the tiny checkpoint by the reference's arithmetic: what it is, how far off."""

from dataclasses import replace

import pytest
import torch

from models_qwen3_5.backbone import Reads, SequencePrompt
from models_qwen3_5.executor import quantise_for
from models_qwen3_5.projection import Projection
from models_qwen3_5.text import DeltaNet
from system1_core.backend import Backend
from system1_core.family import Load
from system1_torch.ops.quantised_linear import FP8, quantised_linear

# Mean difference of final rows from float32 over their deviation: measured 0.14 to 0.30 here.
DRIFT = 0.45


class Fp8(Backend):
    """The plain backend with FP8 among its dtypes, for tests on the CPU."""

    name = "fp8"
    framework = "torch"
    dtypes = ("fp8",)


@pytest.fixture
def load(base):
    return Load(family="qwen3-5", folder=base, backend=Fp8(), dtype="fp8")


@pytest.fixture
def quantised(base, load):
    from models_qwen3_5.checkpoint import load_backbone

    found = load_backbone(base, dtype=torch.bfloat16)
    quantise_for(load, found)
    return found


def test_projections_are_in_fp8_and_gates_norms_and_embeddings_are_not(quantised):
    for projection in quantised.text.projections():
        assert projection.weight.dtype == FP8
        assert projection.scale.shape == projection.weight.shape[:1]
        assert projection.scale.dtype == torch.float32
    for layer in quantised.text.layers:
        assert layer.input_layernorm.dtype == torch.bfloat16
        if isinstance(layer.mixer, DeltaNet):
            rows = 2 * layer.mixer.config.linear_num_value_heads
            assert layer.mixer.in_proj.rest.shape[0] == rows
            assert layer.mixer.in_proj.rest.dtype == torch.bfloat16
    assert quantised.text.embed_tokens.dtype == torch.bfloat16


def test_the_drift_from_float32_is_stated_and_small(backbone, quantised):
    generator = torch.Generator().manual_seed(0)
    drift = []
    for length in (3, 40, 100):
        tokens = torch.randint(200, (length,), generator=generator).tolist()
        prompt = SequencePrompt(tokens, reads=Reads(hidden=tuple(range(length))))
        (exact,), (found,) = backbone.forward([prompt]), quantised.forward([prompt])
        drift.append(float((found.hidden - exact.hidden).abs().mean() / exact.hidden.std()))
    print("mean drift", drift)
    assert max(drift) < DRIFT


def test_quantising_twice_changes_nothing(quantised, load):
    before = [projection.weight.clone() for projection in quantised.text.projections()]
    quantise_for(load, quantised)
    after = [projection.weight for projection in quantised.text.projections()]
    assert all(torch.equal(a.float(), b.float()) for a, b in zip(before, after, strict=True))


def test_other_dtypes_are_left_alone(backbone, load):
    quantise_for(replace(load, dtype="float32"), backbone)
    assert all(projection.scale is None for projection in backbone.text.projections())


def test_a_part_of_a_quantised_projection_is_that_part_of_the_whole():
    projection = Projection([6, 4], 16)
    torch.nn.init.normal_(projection.weight)
    projection.quantise()
    ops = type("Ops", (), {"quantised_linear": staticmethod(quantised_linear)})()
    x = torch.randn(3, 16)
    whole = projection(x, ops)
    for index, part in enumerate(whole):
        (alone,) = projection.part(index, index + 1, x, ops)
        torch.testing.assert_close(alone, part)
