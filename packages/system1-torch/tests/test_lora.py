"""LoRA adapters merge exactly, and an adapter of another model is refused."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from system1_core.errors import CheckpointError
from system1_torch.loading import load_into
from system1_torch.lora import LoraAdapter
from system1_torch.safetensors_file import Safetensors

# Two layers of the tiny Open-Jev checkpoint: base, adapter, and its exporter's merged weights.
FIXTURE = Path(__file__).parent / "fixtures" / "lora"
PREFIX = "model.language_model."
TARGETS = ["q_proj", "k_proj", "v_proj", "o_proj", "in_proj_qkv", "out_proj"]


def adapter_with(folder, config=None, tensors=None):
    shutil.copytree(FIXTURE / "adapter", folder, copy_function=shutil.copyfile)
    if config is not None:
        old = json.loads((folder / "adapter_config.json").read_text())
        (folder / "adapter_config.json").write_text(json.dumps({**old, **config}))
    if tensors is not None:
        file = folder / "adapter_model.safetensors"
        kept = {k: v for k, v in {**load_file(file), **tensors}.items() if v is not None}
        save_file(kept, file)
    return folder


def merged_by(adapter, dtype, **rounding):
    base = Safetensors.open(FIXTURE / "base.safetensors")
    targets = {name: torch.empty(base[name].shape, dtype=dtype) for name in base}
    load_into(targets, base, transform=lambda n, w: adapter.merge(n, w, **rounding))
    return targets


def test_two_roundings_give_the_exporters_weights_bit_for_bit():
    adapter = LoraAdapter.load(FIXTURE / "adapter", lambda module: PREFIX + module)
    adapter.check_base(Safetensors.open(FIXTURE / "base.safetensors"))
    adapter.check_modules(6, TARGETS)
    found = merged_by(adapter, torch.bfloat16, delta_dtype=torch.bfloat16)
    for name, expected in load_file(FIXTURE / "merged.safetensors").items():
        assert torch.equal(found[PREFIX + name], expected)


def test_one_rounding_is_the_float32_sum_cast_once():
    adapter = LoraAdapter.load(FIXTURE / "adapter", lambda module: PREFIX + module)
    found = merged_by(adapter, torch.bfloat16)
    parts = load_file(FIXTURE / "adapter" / "adapter_model.safetensors")
    name = "layers.3.self_attn.q_proj"
    down = parts[f"base_model.model.{name}.lora_A.weight"]
    up = parts[f"base_model.model.{name}.lora_B.weight"]
    base = load_file(FIXTURE / "base.safetensors")[f"{PREFIX}{name}.weight"]
    expected = (base.float() + 2 * (up @ down)).bfloat16()
    assert torch.equal(found[f"{PREFIX}{name}.weight"], expected)


def test_a_weight_without_adapter_is_passed_on():
    adapter = LoraAdapter.load(FIXTURE / "adapter")
    weight = torch.ones(2, 2)
    assert adapter.merge("layers.9.mlp.up_proj.weight", weight) is weight


def test_rank_stabilised_adapters_scale_by_the_root_of_the_rank(tmp_path):
    folder = adapter_with(tmp_path / "a", config={"use_rslora": True})
    assert LoraAdapter.load(folder).scale == pytest.approx(16 / 8**0.5)


@pytest.mark.parametrize(
    "config",
    [
        {"use_dora": True},
        {"peft_type": "LOHA"},
        {"bias": "all"},
        {"rank_pattern": {"q_proj": 4}},
        {"modules_to_save": ["lm_head"]},
        {"fan_in_fan_out": True},
    ],
)
def test_what_is_not_plain_lora_is_refused(tmp_path, config):
    with pytest.raises(CheckpointError, match=f"{next(iter(config))}=.*not plain LoRA"):
        LoraAdapter.load(adapter_with(tmp_path / "a", config=config))


A = "base_model.model.layers.3.self_attn.q_proj.lora_A.weight"


@pytest.mark.parametrize(
    ("config", "tensors", "message"),
    [
        ({"target_modules": [*TARGETS, "up_proj"]}, None, r"targets without tensors \['up_proj'\]"),
        ({"target_modules": TARGETS[1:]}, None, r"modules not in target_modules .*q_proj"),
        ({"target_modules": r".*\.self_attn\..*"}, None, "modules not in target_modules"),
        ({"r": 4}, None, "expected rank 4"),
        ({"r": 0}, None, "expected r, lora_alpha"),
        (None, {A: None}, "odd tensors"),
        (None, {"modules_to_save.weight": torch.ones(1)}, "odd tensors"),
    ],
    ids=["idle-target", "stray", "pattern", "rank", "no-rank", "half-pair", "extra"],
)
def test_config_and_tensors_that_disagree_are_refused(tmp_path, config, tensors, message):
    with pytest.raises(CheckpointError, match=message):
        LoraAdapter.load(adapter_with(tmp_path / "a", config, tensors))


def test_an_adapter_of_another_model_is_refused():
    adapter = LoraAdapter.load(FIXTURE / "adapter")
    with pytest.raises(CheckpointError, match="adapts 6 modules"):
        adapter.check_modules(128, TARGETS)
    with pytest.raises(CheckpointError, match="6 of 6 adapted weights are not in"):
        adapter.check_base(Safetensors.open(FIXTURE / "base.safetensors"))


def test_a_base_of_another_size_is_refused(tmp_path):
    adapter = LoraAdapter.load(FIXTURE / "adapter", lambda module: PREFIX + module)
    base = load_file(FIXTURE / "base.safetensors")
    name = PREFIX + "layers.3.self_attn.k_proj.weight"
    save_file({**base, name: base[name][:-1].clone()}, tmp_path / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"adapts a weight of shape \[512, 32\]"):
        adapter.check_base(Safetensors.open(tmp_path))


def test_a_folder_without_adapter_is_named(tmp_path):
    with pytest.raises(CheckpointError, match=r"adapter_config\.json: missing"):
        LoraAdapter.load(tmp_path)
