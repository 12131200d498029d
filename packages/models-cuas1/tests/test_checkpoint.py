"""Files that are not what they should be are refused, with the remedy."""

import json
import shutil

import pytest
import torch
from conftest import ADAPTERS, BASE, Served, load_of
from safetensors.torch import load_file, save_file

from models_cuas1.checkpoint import adapted_weights, find_sources, open_adapter
from models_cuas1.load import export, load_executor, load_processor
from models_qwen3_5.config import read_config
from system1_core.errors import CheckpointError

STEM = "adapter_model.safetensors"
UP = "base_model.model.model.layers.1.mlp.up_proj.lora_A.weight"


@pytest.fixture
def adapter(tmp_path):
    return shutil.copytree(ADAPTERS / "text", tmp_path / "text")


@pytest.fixture
def base(tmp_path):
    return shutil.copytree(BASE, tmp_path / "base")


def change(file, edit):
    tensors = load_file(file)
    edit(tensors)
    save_file(tensors, file)


def test_the_fixtures_adapt_what_an_adapter_must():
    config = read_config(BASE)
    prefix = "model.language_model."
    assert len(adapted_weights(config, "text", prefix)) == 32
    assert len(adapted_weights(config, "multimodal", prefix)) == 38
    for modality in ("text", "multimodal"):
        assert open_adapter(ADAPTERS / modality, BASE, modality).scale == 2


@pytest.mark.parametrize(("folder", "modality"), [("text", "multimodal"), ("multimodal", "text")])
def test_the_adapter_of_the_other_modality_is_refused(folder, modality):
    with pytest.raises(CheckpointError, match=f"is the {folder} adapter, expected the {modality}"):
        open_adapter(ADAPTERS / folder, BASE, modality)


def test_a_module_too_few_is_refused(adapter):
    def drop(tensors):
        for half in ("lora_A", "lora_B"):
            del tensors[UP.replace("lora_A", half)]

    change(adapter / STEM, drop)
    with pytest.raises(CheckpointError, match=r"adapts 31 weights, expected the 32 .*layers\.1\."):
        open_adapter(adapter, BASE, "text")


def test_a_module_too_many_is_refused(adapter):
    def add(tensors):
        name = "base_model.model.model.layers.0.linear_attn.out_proj.lora_{}.weight"
        tensors[name.format("A")] = torch.zeros(16, 512)
        tensors[name.format("B")] = torch.zeros(32, 16)

    change(adapter / STEM, add)
    file = adapter / "adapter_config.json"
    config = json.loads(file.read_text())
    config["target_modules"].append("out_proj")
    file.write_text(json.dumps(config))
    with pytest.raises(CheckpointError, match=r"adapts 33 weights.*out_proj"):
        open_adapter(adapter, BASE, "text")


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_value_that_is_not_finite_is_refused(adapter, value):
    change(adapter / STEM, lambda tensors: tensors[UP][3, 5:6].fill_(value))
    with pytest.raises(CheckpointError, match=r"up_proj\.lora_A.*not finite; fetch"):
        open_adapter(adapter, BASE, "text")


def test_integers_are_refused(adapter):
    change(adapter / STEM, lambda tensors: tensors.update({UP: tensors[UP].to(torch.int8)}))
    with pytest.raises(CheckpointError, match=r"found torch\.int8, expected a float"):
        open_adapter(adapter, BASE, "text")


@pytest.mark.parametrize("key", ["use_dora", "lora_bias"])
def test_an_adapter_that_is_no_plain_lora_is_refused(adapter, key):
    file = adapter / "adapter_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {key: True}))
    with pytest.raises(CheckpointError, match=key):
        open_adapter(adapter, BASE, "text")


def test_a_truncated_adapter_is_refused(adapter):
    file = adapter / STEM
    file.write_bytes(file.read_bytes()[:-8])
    with pytest.raises(CheckpointError, match=r"bytes, expected .*fetch"):
        open_adapter(adapter, BASE, "text")


def test_an_adapter_of_another_width_is_refused(adapter):
    change(adapter / STEM, lambda tensors: tensors.update({UP: torch.zeros(16, 33)}))
    with pytest.raises(CheckpointError, match=r"shape \[64, 33\]"):
        load_executor(load_of("cuas1-text", folder=adapter))


SHARD = "model.safetensors-00002-of-00002.safetensors"


def spoil_truncated(base):
    file = base / SHARD
    file.write_bytes(file.read_bytes()[:-2])


def spoil_missing(base):
    tensors = load_file(base / SHARD)
    name = next(name for name in tensors if name.endswith("layers.7.mlp.up_proj.weight"))
    del tensors[name]
    save_file(tensors, base / SHARD)
    index = base / "model.safetensors.index.json"
    content = json.loads(index.read_text())
    del content["weight_map"][name]
    index.write_text(json.dumps(content))


def spoil_dtype(base):
    change(
        base / SHARD,
        lambda tensors: tensors.update(
            {name: tensor.to(torch.int8) for name, tensor in tensors.items()}
        ),
    )


def spoil_path(base):
    index = base / "model.safetensors.index.json"
    index.write_text(index.read_text().replace(SHARD, f"../{SHARD}"))


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (spoil_truncated, "expected"),
        (spoil_missing, "missing|not in"),
        (spoil_dtype, "found torch.int8"),
        (spoil_path, "is not the name of a file in this folder"),
    ],
    ids=["truncated shard", "missing tensor", "wrong dtype", "path that leaves the folder"],
)
@pytest.mark.parametrize("family", ["cuas1", "cuas1-multimodal"])
def test_a_hostile_base_is_refused(base, spoil, words, family):
    spoil(base)
    with pytest.raises(CheckpointError, match=words):
        load_executor(load_of(family, options={"base": base}))


def test_a_folder_without_adapters_is_refused(tmp_path):
    for family in ("cuas1", "cuas1-text"):
        with pytest.raises(CheckpointError, match=r"found neither adapter_config\.json nor"):
            find_sources(load_of(family, folder=tmp_path))


def test_one_adapter_alone_is_served_under_its_own_name_only(adapter):
    with pytest.raises(CheckpointError, match="serve one modality as cuas1-text="):
        find_sources(load_of("cuas1", folder=adapter.parent))
    for folder in (adapter, adapter.parent):
        (source,) = find_sources(load_of("cuas1-text", folder=folder))
        assert source.adapter == adapter


def test_without_folders_the_pinned_checkpoints_are_fetched():
    fetched = []

    def fetch(name):
        fetched.append(name)
        return BASE if name.startswith("qwen") else ADAPTERS

    for family in ("cuas1", "cuas1-text"):
        find_sources(load_of(family, folder=None, options={"base": None}, fetch=fetch))
    assert fetched == ["cua-s1-4b-0.2", "qwen3-5-4b", "cua-s1-4b-0.2-text", "qwen3-5-4b"]


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("{{- '<think>\\n' -}}", "", "ends a text prompt"),
        ("'<|vision_start|><|image_pad|><|vision_end|>'", "'<|image_pad|>'", "ends a multimodal"),
    ],
    ids=["no open thought", "other image tokens"],
)
def test_a_template_that_makes_another_prompt_is_refused(base, old, new, words):
    file = base / "chat_template.jinja"
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))
    with pytest.raises(CheckpointError, match=words):
        load_processor(load_of(options={"base": base}))


def test_a_tokenizer_without_single_letters_is_refused(base):
    file = base / "tokenizer.json"
    content = json.loads(file.read_text())
    vocabulary = content["model"]["vocab"]
    content["added_tokens"] = [
        t for t in content["added_tokens"] if t["content"] != "<|image_pad|>"
    ]
    vocabulary["<unused>"] = vocabulary.pop("K")
    file.write_text(json.dumps(content))
    with pytest.raises(CheckpointError, match=r"tokenizer\.json"):
        load_processor(load_of(options={"base": base}))


def test_pictures_need_a_base_with_a_tower(base):
    file = base / "config.json"
    content = json.loads(file.read_text())
    del content["vision_config"]
    file.write_text(json.dumps(content))
    with pytest.raises(CheckpointError, match="no vision tower"):
        load_processor(load_of("cuas1-multimodal", options={"base": base}))
    assert load_processor(load_of("cuas1-text", options={"base": base}))


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    out = tmp_path_factory.mktemp("export")
    export(load_of(), out)
    return out


@pytest.fixture
def copy(exported, tmp_path):
    return shutil.copytree(exported, tmp_path / "copy")


def refusal(folder):
    """What an engine that loads both parts would say."""
    with pytest.raises(CheckpointError) as caught:
        Served(load_of(folder=folder))
    return str(caught.value)


def test_a_half_made_export_is_refused(copy):
    (copy / "multimodal" / "system1_export.json").unlink()
    assert "found neither adapter_config.json nor system1_export.json" in refusal(copy)


def test_a_changed_weight_of_an_export_is_refused(copy):
    file = copy / "text" / "model.safetensors"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    assert "SHA-256" in refusal(copy)


def test_an_export_of_the_other_modality_is_refused(copy):
    shutil.rmtree(copy / "multimodal")
    shutil.copytree(copy / "text", copy / "multimodal")
    assert "expected 'cuas1-multimodal'" in refusal(copy)


def test_an_export_beside_an_adapter_is_refused(copy):
    shutil.rmtree(copy / "text")
    shutil.copytree(ADAPTERS / "text", copy / "text")
    assert "beside an adapter" in refusal(copy)


def test_an_export_is_not_exported_again(copy, tmp_path):
    with pytest.raises(CheckpointError, match="is an export already"):
        export(load_of(folder=copy), tmp_path)


def test_exports_of_two_bases_are_not_served_together(copy, base):
    change(
        base / "model.safetensors-00001-of-00002.safetensors",
        lambda tensors: tensors["model.language_model.layers.0.input_layernorm.weight"].add_(1),
    )
    shutil.rmtree(copy / "multimodal")
    (copy / "multimodal").mkdir()
    export(load_of("cuas1-multimodal", options={"base": base}), copy / "multimodal")
    assert "differs from the other modality's" in refusal(copy)
