"""Checkpoints that are not what they should be fail at load, naming file and remedy."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from conftest import FIXTURES
from safetensors.torch import load_file, save_file

from models_laya.checkpoint import CHECKPOINTS, find_checkpoints, tensor_shapes
from models_laya.config import bucket, load_config
from models_laya.load import folders_of, load_executor, load_processor
from system1_core.errors import CheckpointError
from system1_core.family import Load


@pytest.fixture
def folder(tmp_path):
    target = tmp_path / "checkpoint"
    shutil.copytree(FIXTURES / "checkpoint", target)
    for path in target.rglob("*"):
        path.chmod(0o755)
    return target


def _load(folder):
    load = Load(family="laya-english", folder=folder, options={"threads": 1})
    load_processor(load)
    return load_executor(load)


def _edit_json(path: Path, **changes):
    values = json.loads(path.read_text())
    for key, value in changes.items():
        if value is ...:
            values.pop(key, None)
        else:
            values[key] = value
    path.write_text(json.dumps(values))


def _edit_tensors(folder, edit):
    tensors = load_file(folder / "model.safetensors")
    edit(tensors)
    save_file(tensors, folder / "model.safetensors")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"encoder": ...}, "encoder"),
        ({"head_layers": ...}, "head_layers"),
        ({"head_layers": "2"}, "head_layers"),
        ({"temperature": [1.0, 1.0]}, "temperature"),
        ({"temperature": 1.0}, "temperature"),
        ({"temperature_by_options": []}, "temperature_by_options"),
        ({"option_layout": "diagonal"}, "option_layout"),
        ({"option_layout": "parallel"}, "option_layout"),
        ({"max_len": 0}, "max_len"),
        ({"max_len": True}, "max_len"),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)
def test_a_bad_head_config_is_refused(folder, changes, words):
    _edit_json(folder / "rl_agent_config.json", **changes)
    with pytest.raises(CheckpointError, match=rf"rl_agent_config.json.*{words}"):
        _load(folder)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"hidden_size": ...}, "hidden_size"),
        ({"hidden_activation": "relu"}, "hidden_activation"),
        ({"norm_bias": True}, "norm_bias"),
        ({"num_attention_heads": 3}, "num_attention_heads"),
        ({"layer_types": ["full_attention"]}, "layer_types"),
        ({"layer_types": ["full_attention", "x", "x", "x"]}, "layer_types"),
        ({"rope_parameters": {"full_attention": {}}}, "rope_parameters"),
        ({"global_rope_theta": 0}, "global_rope_theta"),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)
def test_a_bad_encoder_config_is_refused(folder, changes, words):
    _edit_json(folder / "encoder" / "config.json", **changes)
    with pytest.raises(CheckpointError, match=rf"config.json.*{words}"):
        _load(folder)


@pytest.mark.parametrize(
    "name",
    [
        "rl_agent_config.json",
        "model.safetensors",
        "encoder/config.json",
        "tokenizer/tokenizer.json",
        "tokenizer/tokenizer_config.json",
    ],
)
def test_a_missing_file_is_named(folder, name):
    (folder / name).unlink()
    with pytest.raises(CheckpointError, match=Path(name).name):
        _load(folder)


@pytest.mark.parametrize(
    "name",
    [
        "rl_agent_config.json",
        "encoder/config.json",
        "tokenizer/tokenizer.json",
        "tokenizer/tokenizer_config.json",
    ],
)
@pytest.mark.parametrize("text", ["{", "[]", ""], ids=["broken", "a list", "empty"])
def test_a_file_that_is_no_object_is_refused(folder, name, text):
    (folder / name).write_text(text)
    with pytest.raises(CheckpointError, match=Path(name).name):
        _load(folder)


def test_a_missing_tensor_is_named(folder):
    _edit_tensors(folder, lambda tensors: tensors.pop("encoder.layers.2.mlp_norm.weight"))
    with pytest.raises(CheckpointError, match=r"missing encoder.layers.2.mlp_norm.weight"):
        _load(folder)


def test_an_unexpected_tensor_is_named(folder):
    name = "encoder.layers.0.attn_norm.weight"
    _edit_tensors(folder, lambda tensors: tensors.update({name: torch.ones(128)}))
    with pytest.raises(CheckpointError, match=rf"unexpected {name}"):
        _load(folder)


@pytest.mark.parametrize("part", ["encoder.", "type_emb.", "scorer.", "act_head."])
def test_a_missing_part_is_named(folder, part):
    def drop(tensors):
        for name in [name for name in tensors if name.startswith(part)]:
            del tensors[name]

    _edit_tensors(folder, drop)
    with pytest.raises(CheckpointError, match=rf"no tensor begins with {part}"):
        _load(folder)


def test_a_tensor_of_another_shape_is_named(folder):
    _edit_tensors(folder, lambda tensors: tensors.update({"type_emb.weight": torch.ones(4, 128)}))
    with pytest.raises(CheckpointError, match=r"type_emb.weight.*\[4, 128\].*\[3, 128\]"):
        _load(folder)


def test_a_tensor_of_integers_is_refused(folder):
    whole = torch.ones(3, 128, dtype=torch.int64)
    _edit_tensors(folder, lambda tensors: tensors.update({"type_emb.weight": whole}))
    with pytest.raises(CheckpointError, match=r"type_emb.weight.*int64"):
        _load(folder)


def test_a_value_that_is_not_finite_is_refused(folder):
    def poison(tensors):
        tensors["encoder.layers.1.mlp.Wi.weight"][3, 5] = torch.nan

    _edit_tensors(folder, poison)
    with pytest.raises(CheckpointError, match=r"layers.1.mlp.Wi.weight.*not finite"):
        _load(folder)


def test_a_truncated_file_is_refused(folder):
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-1000])
    with pytest.raises(CheckpointError, match="model.safetensors"):
        _load(folder)


def test_a_special_token_outside_the_vocabulary_is_refused(folder):
    _edit_json(folder / "tokenizer" / "tokenizer_config.json", mask_token="[NOPE]")
    with pytest.raises(CheckpointError, match=r"\[NOPE\]"):
        _load(folder)


@pytest.mark.parametrize(
    "changes",
    [
        {"tokenizer_class": None},
        {"tokenizer_class": "TokenizersBackend"},
        {"extra_special_tokens": ["[EXTRA]"]},
        {"mask_token": {"content": "[MASK]", "lstrip": True}},
    ],
    ids=str,
)
def test_tokenizer_configs_of_newer_tooling_load(folder, changes):
    _edit_json(folder / "tokenizer" / "tokenizer_config.json", **changes)
    _load(folder)


def test_temperatures_are_clamped_and_nonsense_is_one(folder):
    _edit_json(
        folder / "rl_agent_config.json",
        temperature=[0.1, 9, True],
        temperature_by_options={"choice:2": "x", "score:2": None, "noul:2": 1e999},
    )
    temperatures = load_config(folder).temperatures
    assert temperatures.by_type == (0.5, 5.0, 1.0)
    assert set(temperatures.by_bucket.values()) == {1.0}


def test_keys_that_may_be_absent_have_the_originals_defaults(folder):
    _edit_json(
        folder / "rl_agent_config.json",
        max_len=...,
        head_max_len=...,
        temperature=...,
        temperature_by_options=...,
    )
    _edit_json(
        folder / "encoder" / "config.json",
        global_attn_every_n_layers=...,
        global_rope_theta=...,
        local_rope_theta=...,
    )
    config = load_config(folder)
    assert (config.max_len, config.head_max_len) == (512, 192)
    assert config.temperatures.of("noul", 2) == 1.0
    assert config.encoder.is_full == (True, False, False, True)
    assert (config.encoder.full_theta, config.encoder.local_theta) == (160_000, 10_000)


def test_layer_types_win_over_the_integer(folder):
    kinds = ["sliding_attention", "full_attention", "full_attention", "sliding_attention"]
    _edit_json(folder / "encoder" / "config.json", layer_types=kinds)
    assert load_config(folder).encoder.is_full == (False, True, True, False)


def test_buckets_begin_where_the_contract_says():
    spans = [bucket("choice", count) for count in (1, 2, 3, 5, 6, 10, 11, 255)]
    assert spans == [
        "choice:2", "choice:2", "choice:3-5", "choice:3-5", "choice:6-10", "choice:6-10",
        "choice:11+", "choice:11+",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("encoder", "count", "parameters"),
    [
        ({}, 206, 421_293_830),
        (
            {
                "hidden_size": 768,
                "num_hidden_layers": 22,
                "num_attention_heads": 12,
                "intermediate_size": 1152,
                "vocab_size": 256_000,
            },
            170,
            321_908_998,
        ),
    ],
    ids=["english", "multilingual"],
)
def test_the_inventory_counts_the_published_tensors(folder, encoder, count, parameters):
    large = {
        "hidden_size": 1024,
        "num_hidden_layers": 28,
        "num_attention_heads": 16,
        "intermediate_size": 2624,
        "vocab_size": 50_368,
    }
    _edit_json(folder / "encoder" / "config.json", **(large | encoder))
    shapes = tensor_shapes(load_config(folder))
    assert len(shapes) == count
    assert sum(torch.Size(shape).numel() for shape in shapes.values()) == parameters


def test_pins_are_those_of_the_contract():
    assert {pin.name: (pin.repo, pin.revision[:8]) for pin in CHECKPOINTS} == {
        "english": ("convaiinnovations/laya", "55cf4c4e"),
        "multilingual": ("convaiinnovations/laya-multilingual", "e4e9ddf2"),
        "typed-decisions": ("convaiinnovations/laya-typed-decisions", "1a793eb5"),
    }


def _make(folder):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "rl_agent_config.json").write_text("{}")
    return folder


def test_the_hubs_layout_is_english_at_the_root(tmp_path):
    root = _make(tmp_path / "laya")
    below = {name: _make(root / name) for name in ("multilingual", "typed-decisions")}
    assert find_checkpoints(root) == {"english": root, **below}


def test_a_parent_of_several_names_them_by_folder(tmp_path):
    names = {"english": "checkpoint", "multilingual": "checkpoint-multilingual"}
    folders = {name: _make(tmp_path / folder) for name, folder in names.items()}
    assert find_checkpoints(tmp_path) == folders


@pytest.mark.parametrize(
    ("folder", "name"),
    [
        ("anything", "english"),
        ("laya-multilingual", "multilingual"),
        ("typed_decisions", "typed-decisions"),
    ],
)
def test_a_single_checkpoint_is_named_by_its_folder(tmp_path, folder, name):
    assert find_checkpoints(_make(tmp_path / folder)) == {name: tmp_path / folder}


def test_two_folders_of_one_name_are_refused(tmp_path):
    _make(tmp_path / "one")
    _make(tmp_path / "two")
    with pytest.raises(CheckpointError, match="'one' and 'two'"):
        find_checkpoints(tmp_path)


def test_a_folder_without_checkpoint_is_refused(tmp_path):
    with pytest.raises(CheckpointError, match=r"rl_agent_config\.json"):
        find_checkpoints(tmp_path)


def test_option_folders_add_to_the_folder_and_a_list_restricts_it(tmp_path):
    english, other = _make(tmp_path / "here"), _make(tmp_path / "there")
    options = {"multilingual": str(other)}
    both = folders_of(Load(family="laya", folder=english, options=options))
    assert both == {"english": english, "multilingual": other}
    options["checkpoints"] = ("multilingual",)
    assert folders_of(Load(family="laya", folder=english, options=options)) == {
        "multilingual": other
    }


def test_a_checkpoint_that_was_asked_for_and_is_not_there_is_named(tmp_path):
    options = {"checkpoints": ("english", "typed-decisions")}
    with pytest.raises(CheckpointError, match="typed-decisions"):
        folders_of(Load(family="laya", folder=_make(tmp_path / "here"), options=options))


def test_without_a_folder_the_pinned_checkpoints_are_fetched(tmp_path):
    fetched = folders_of(Load(family="laya", fetch=lambda name: tmp_path / name))
    assert list(fetched) == ["english", "multilingual", "typed-decisions"]
    single = Load(family="laya-multilingual", fetch=lambda name: tmp_path / name)
    assert folders_of(single) == {"multilingual": tmp_path / "multilingual"}


def test_the_token_table_keeps_the_files_dtype():
    executor = load_executor(
        Load(family="laya-english", folder=FIXTURES / "checkpoint", options={"threads": 1})
    )
    model = executor._models["english"]
    assert model._tok_embeddings.dtype == torch.float16
