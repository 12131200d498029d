"""The Qwen3 encoder against the vectors of transformers, and files that are refused."""

import json
import shutil

import numpy as np
import pytest
import torch
from conftest import ENCODER, golden
from safetensors.torch import load_file, save_file

from models_clm.encoder import Encoder, load_tokenizer
from models_clm.qwen3_config import Qwen3Config
from system1_core import CheckpointError

VECTORS = golden("encoder/vectors.json")
SEQUENCES = [case["token_ids"] for case in VECTORS]


@pytest.fixture(scope="module")
def encoder():
    return Encoder.load(ENCODER)


@pytest.fixture
def folder(tmp_path):
    return shutil.copytree(ENCODER, tmp_path / "encoder")


def change_config(folder, **changes):
    file = folder / "config.json"
    fields = json.loads(file.read_text()) | changes
    file.write_text(json.dumps({name: value for name, value in fields.items() if value is not ...}))


@pytest.mark.parametrize("case", VECTORS, ids=lambda case: case["name"])
def test_token_ids_are_the_tokenizers(case):
    assert load_tokenizer(ENCODER, 320).encode(case["text"]).ids == case["token_ids"]


@pytest.mark.parametrize("case", VECTORS, ids=lambda case: case["name"])
def test_vector_alone_is_that_of_transformers(case, encoder):
    (found,) = encoder.embed([case["token_ids"]])
    assert found == pytest.approx(np.array(case["vector"]), abs=2e-6)


@pytest.mark.parametrize("order", [1, -1], ids=["forwards", "backwards"])
def test_vectors_together_are_those_of_transformers(order, encoder):
    found = encoder.embed(SEQUENCES[::order])
    for vector, case in zip(found, VECTORS[::order], strict=True):
        assert vector == pytest.approx(np.array(case["vector"]), abs=2e-6), case["name"]


def test_neighbours_and_shared_beginnings_change_nothing(encoder):
    prefix = SEQUENCES[4]
    many = [[*prefix, token] for token in range(40)] + [prefix[:70], [3], prefix]
    together = encoder.embed(many)
    for sequence, vector in zip(many, together, strict=True):
        (alone,) = encoder.embed([sequence])
        assert vector == pytest.approx(alone, abs=2e-6)


def test_vectors_have_unit_length_and_own_their_memory(encoder):
    found = encoder.embed(SEQUENCES)
    assert all(np.linalg.norm(vector) == pytest.approx(1, abs=1e-6) for vector in found)
    assert all(vector.base is None for vector in found)


def test_bfloat16_stays_close():
    # Two runs of transformers, float32 and bfloat16, differ by up to 0.0052 here (5.24.0, CPU).
    found = Encoder.load(ENCODER, dtype=torch.bfloat16).embed(SEQUENCES)
    for vector, case in zip(found, VECTORS, strict=True):
        assert vector == pytest.approx(np.array(case["vector"]), abs=0.0104)


def test_checkpoint_without_prefix_and_head_is_read_alike(folder, encoder):
    file = folder / "model.safetensors"
    tensors = load_file(file)
    del tensors["lm_head.weight"]
    save_file({name.removeprefix("model."): tensor for name, tensor in tensors.items()}, file)
    for one, other in zip(
        Encoder.load(folder).embed(SEQUENCES), encoder.embed(SEQUENCES), strict=True
    ):
        assert (one == other).all()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model_type": "qwen2"}, "model_type is 'qwen2', expected 'qwen3'"),
        ({"model_type": ...}, "model_type is None, expected 'qwen3'"),
        ({"hidden_act": "gelu"}, "hidden_act is 'gelu'"),
        ({"attention_bias": True}, "attention_bias is True, expected none"),
        ({"quantization_config": {"bits": 4}}, "quantization_config"),
        ({"rope_scaling": {"type": "yarn"}}, "rope_scaling"),
        ({"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e6}}, "rope_type is 'yarn'"),
        ({"rope_parameters": ...}, "rope_theta is None"),
        ({"num_hidden_layers": 0}, "num_hidden_layers is 0, expected 1"),
        ({"num_hidden_layers": 10**12}, "num_hidden_layers is"),
        ({"num_key_value_heads": 3}, "attention heads do not divide"),
        ({"rms_norm_eps": "tiny"}, "rms_norm_eps is 'tiny'"),
    ],
    ids=str,
)
def test_config_of_another_model_is_refused(folder, changes, message):
    change_config(folder, **changes)
    with pytest.raises(CheckpointError, match=message) as caught:
        Qwen3Config.load(folder)
    assert "config.json" in str(caught.value)


def test_config_of_older_files_states_rope_theta_itself(folder):
    change_config(folder, rope_parameters=..., rope_theta=5e5)
    assert Qwen3Config.load(folder).rope_theta == 5e5


def test_missing_config_is_refused(tmp_path):
    with pytest.raises(CheckpointError, match="config.json: missing"):
        Qwen3Config.load(tmp_path)


@pytest.mark.parametrize("change", ["missing", "extra", "shape"])
def test_tensors_must_match_exactly(folder, change):
    file = folder / "model.safetensors"
    tensors = load_file(file)
    name = "model.layers.1.self_attn.q_norm.weight"
    if change == "missing":
        del tensors[name]
    elif change == "extra":
        name = "model.layers.3.self_attn.q_norm.weight"
        tensors[name] = torch.ones(24)
    else:
        tensors[name] = torch.ones(25)
    save_file(tensors, file)
    with pytest.raises(CheckpointError, match=name.removeprefix("model.").replace(".", r"\.")):
        Encoder.load(folder)


def test_weights_that_are_not_finite_are_refused(folder):
    file = folder / "model.safetensors"
    tensors = load_file(file)
    tensors["model.norm.weight"][5] = float("inf")
    save_file(tensors, file)
    with pytest.raises(CheckpointError, match=r"model\.norm\.weight.*not finite"):
        Encoder.load(folder)


def test_sizes_that_the_file_does_not_hold_are_refused_before_memory_is_taken(folder):
    change_config(folder, vocab_size=10**7)
    with pytest.raises(CheckpointError, match=r"embed_tokens.*expected \[10000000, 64\]"):
        Encoder.load(folder)


def test_tokenizer_of_another_model_is_refused():
    with pytest.raises(
        CheckpointError, match=r"tokenizer.json: \d+ tokens, expected at most .* 10;"
    ):
        load_tokenizer(ENCODER, 10)


def test_broken_tokenizer_is_refused(folder):
    (folder / "tokenizer.json").write_text("{}")
    with pytest.raises(CheckpointError, match="tokenizer.json.*fetch it again"):
        load_tokenizer(folder, 320)


def test_missing_tokenizer_is_refused(tmp_path):
    with pytest.raises(CheckpointError, match="tokenizer.json: missing"):
        load_tokenizer(tmp_path, 320)
