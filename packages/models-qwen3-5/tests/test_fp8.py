"""`--dtype fp8` on the tiny checkpoint by the reference's arithmetic: what it is, how far off."""

import gc
from dataclasses import fields, replace

import pytest
import torch
from checkpoints import image_text_config, random_tensors, write_checkpoint, write_config
from conftest import FIXTURES
from safetensors.torch import save_file

from models_qwen3_5.backbone import Reads, SequencePrompt
from models_qwen3_5.checkpoint import Parts, load_adapter, load_backbone
from models_qwen3_5.executor import open_backbone, quantise_for
from models_qwen3_5.ops import Ops
from models_qwen3_5.projection import Projection
from models_qwen3_5.text import DeltaNet
from system1_core.backend import Backend
from system1_core.errors import CheckpointError
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


def prompt_of(length, reads=None):
    tokens = torch.randint(200, (length,), generator=torch.Generator().manual_seed(length)).tolist()
    return SequencePrompt(tokens, reads=Reads(hidden=tuple(reads or range(length))))


@pytest.mark.parametrize("reads", [None, (7, 39)], ids=["all-rows", "two-rows"])
def test_rows_quantised_where_they_are_made_change_no_bit(quantised, monkeypatch, reads):
    prompt = prompt_of(40, reads)
    (found,) = quantised.forward([prompt])
    # Norms and gates then give 16 bits, and each product quantises its input.
    monkeypatch.setattr(Projection, "is_quantised", False)
    (expected,) = quantised.forward([prompt])
    assert torch.equal(found.hidden, expected.hidden)


def test_every_norm_and_gate_gives_what_the_product_behind_it_reads(quantised, monkeypatch):
    calls = {field.name: 0 for field in fields(Ops)}

    def counted(name, op):
        def call(*inputs):
            calls[name] += 1
            return op(*inputs)

        return call

    counting = {name: counted(name, getattr(quantised.ops, name)) for name in calls}
    counting["tune_linear"] = None
    monkeypatch.setattr(quantised, "ops", Ops(**counting))
    quantised.forward([prompt_of(9)])
    layers = quantised.text.layers
    deltas = sum(isinstance(layer.mixer, DeltaNet) for layer in layers)
    assert calls["rms_norm"] == 0
    assert calls["rms_norm_quantised"] == 1
    # The last norm is for the heads.
    assert calls["add_rms_norm"] == 1
    assert calls["add_rms_norm_quantised"] == 2 * len(layers) - 1
    assert (calls["silu_mul"], calls["silu_mul_quantised"]) == (0, len(layers))
    assert (calls["gated_rms_norm"], calls["gated_rms_norm_quantised"]) == (0, deltas)


def test_quantised_while_loading_and_after_are_the_same(base, load, quantised):
    found = open_backbone(load, base)
    assert_equal(found.text, quantised.text)
    assert_equal(found.vision, quantised.vision)


def test_an_adapter_is_merged_before_a_layer_is_quantised(base, load):
    parts = Parts(adapter=load_adapter(FIXTURES / "adapters" / "text"), vision=False)
    after = open_backbone(load, base, parts, quantised=False)
    quantise_for(load, after)
    assert_equal(open_backbone(load, base, parts).text, after.text)


def test_the_vocabulary_is_cut_and_rows_are_set_in_fp8_too(base, load):
    row = torch.full((load_backbone(base).config.text.hidden_size,), 2.0)
    found = open_backbone(load, base, Parts(vocabulary=210, rows={209: row}))
    assert found.text.embed_tokens.shape[0] == 210
    assert torch.equal(found.text.embed_tokens[209].float(), row)


def test_one_layer_at_a_time_is_there_in_16_bits(tmp_path, monkeypatch):
    folder = write_checkpoint(tmp_path)
    in_16_bits = largest = 0
    whole = Projection.quantise

    def watched(projection):
        nonlocal largest
        largest = max(largest, live_bytes(torch.bfloat16))
        whole(projection)

    monkeypatch.setattr(Projection, "quantise", watched)
    before = live_bytes(torch.bfloat16)
    found = load_backbone(folder, dtype=torch.bfloat16, quantised=True)
    after = live_bytes(torch.bfloat16)
    for layer in found.text.layers:
        parts = [part for part in layer.modules() if isinstance(part, Projection)]
        in_16_bits = max(in_16_bits, sum(2 * part.weight.numel() for part in parts))
    assert largest > before
    assert largest - before <= after - before + in_16_bits


def test_a_missing_tensor_is_found_before_any_layer_is_loaded(tmp_path, monkeypatch):
    folder = write_config(tmp_path, image_text_config())
    tensors = random_tensors(folder)
    del tensors["model.language_model.layers.3.mlp.down_proj.weight"]
    save_file(tensors, folder / "model.safetensors")
    monkeypatch.setattr(Projection, "quantise", lambda _: pytest.fail("a layer was loaded"))
    with pytest.raises(CheckpointError, match=r"layers\.3\.mlp\.down_proj\.weight"):
        load_backbone(folder, dtype=torch.bfloat16, quantised=True)


def live_bytes(dtype):
    """Memory of all tensors of a dtype on the CPU, each piece counted once."""
    found = {}
    for value in gc.get_objects():
        if type(value) in (torch.Tensor, torch.nn.Parameter) and value.device.type == "cpu":
            storage = value.untyped_storage()
            if value.dtype == dtype:
                found[storage.data_ptr()] = storage.nbytes()
    return sum(found.values())


def assert_equal(found, expected):
    mine, theirs = found.state_dict(), expected.state_dict()
    assert list(mine) == list(theirs)
    for name, value in mine.items():
        assert value.dtype == theirs[name].dtype
        assert torch.equal(value.float(), theirs[name].float()), name
