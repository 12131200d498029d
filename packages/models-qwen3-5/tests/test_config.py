"""`config.json`: what is read, and what is refused as another network."""

import json

import pytest
from checkpoints import TEXT, image_text_config, write_config

from models_qwen3_5.config import read_config
from system1_core.errors import CheckpointError


def test_the_image_text_layout_is_read(tmp_path):
    config = read_config(write_config(tmp_path, image_text_config()))
    assert config.text.rotary_dim == 16
    assert config.text.conv_channels == 2 * 16 + 72
    assert config.vision.patch_values == 1536
    assert config.image_token_id == 49


def test_a_text_export_is_the_text_config_itself(tmp_path):
    config = read_config(write_config(tmp_path, TEXT))
    assert config.vision is None
    assert config.text.hidden_size == 24


def test_layer_types_are_derived_where_they_are_not_listed(tmp_path):
    config = read_config(write_config(tmp_path, TEXT))
    assert config.text.layer_types == ("linear_attention",) * 3 + ("full_attention",)


def test_old_files_repeat_the_rotary_factor_outside(tmp_path):
    rope = {k: v for k, v in TEXT["rope_parameters"].items() if k != "partial_rotary_factor"}
    old = TEXT | {"rope_parameters": rope, "partial_rotary_factor": 0.5}
    assert read_config(write_config(tmp_path, old)).text.rotary_dim == 16


def test_the_older_vision_type_is_accepted(base):
    assert read_config(base).vision.depth == 2


ROPE = TEXT["rope_parameters"]
REFUSED = {
    "another type": ({"model_type": "qwen3_text"}, "model_type"),
    "activation": ({"hidden_act": "gelu"}, "hidden_act"),
    "bias": ({"attention_bias": True}, "attention_bias"),
    "no gate": ({"attn_output_gate": False}, "attn_output_gate"),
    "missing size": ({"hidden_size": None}, "hidden_size"),
    "negative size": ({"intermediate_size": -1}, "intermediate_size"),
    "boolean size": ({"num_hidden_layers": True}, "num_hidden_layers"),
    "heads": ({"num_key_value_heads": 4}, "num_attention_heads"),
    "linear heads": ({"linear_num_key_heads": 4}, "linear_num_value_heads"),
    "layer kind": ({"layer_types": ["linear_attention"] * 3 + ["sliding"]}, "layer_types"),
    "layer count": ({"layer_types": ["linear_attention"]}, "layer_types"),
    "no rope": ({"rope_parameters": None}, "rope_parameters"),
    "rope type": ({"rope_parameters": ROPE | {"rope_type": "yarn"}}, "rope_type"),
    "sections": ({"rope_parameters": ROPE | {"mrope_section": [3, 3, 3]}}, "mrope_section"),
    "order": ({"rope_parameters": ROPE | {"mrope_interleaved": False}}, "mrope_interleaved"),
}


@pytest.mark.parametrize(("change", "named"), REFUSED.values(), ids=REFUSED.keys())
def test_another_network_is_refused_by_its_key(change, named, tmp_path):
    folder = write_config(tmp_path, image_text_config(**change))
    with pytest.raises(CheckpointError, match=rf"config\.json.*{named}"):
        read_config(folder)


@pytest.mark.parametrize(
    "change",
    [{"deepstack_visual_indexes": [1]}, {"num_position_embeddings": 10}, {"out_hidden_size": 25}],
    ids=["deepstack", "table", "width"],
)
def test_another_tower_is_refused(change, tmp_path):
    config = image_text_config()
    config["vision_config"] = config["vision_config"] | change
    with pytest.raises(CheckpointError, match=next(iter(change))):
        read_config(write_config(tmp_path, config))


@pytest.mark.parametrize("text", [None, "[]", "{", "3"], ids=["missing", "list", "cut", "number"])
def test_a_file_that_is_no_config_is_refused(text, tmp_path):
    if text is not None:
        (tmp_path / "config.json").write_text(text)
    with pytest.raises(CheckpointError, match=r"config\.json"):
        read_config(tmp_path)


def test_a_config_of_another_model_says_what_it_found(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "bert"}))
    with pytest.raises(CheckpointError, match="model_type is 'bert', expected qwen3_5"):
        read_config(tmp_path)
