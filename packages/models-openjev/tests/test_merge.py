"""`system1 export`: bit for bit the original exporter's model, and only whole ones are served."""

import json

import pytest
from conftest import CASES, FAMILIES, FIXTURES, Served, load_of
from safetensors.torch import load_file

from models_qwen3_5.export import MANIFEST
from system1_core.config import ModelChoice, ServeConfig
from system1_core.engines import export_model
from system1_core.errors import CheckpointError, ConfigError
from system1_core.plugins import discover

MARKER = "open_jev_export.json"


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    out = tmp_path_factory.mktemp("exports") / "merged"
    options = [f"openjev.base={FIXTURES / 'base'}"]
    choice = ModelChoice(name="openjev", folder=FIXTURES / "checkpoint")
    config = ServeConfig(models=[choice], options=options, device="cpu", dtype="bfloat16")
    return export_model(config, discover(), out)


@pytest.fixture
def copy(exported, tmp_path):
    import shutil

    return shutil.copytree(exported, tmp_path / "copy")


def test_every_tensor_equals_the_original_exporters(exported):
    found = load_file(exported / "model.safetensors")
    expected = load_file(FIXTURES / "merged" / "model.safetensors")
    assert set(found) == set(expected)
    assert {tensor.dtype for tensor in found.values()} == {
        tensor.dtype for tensor in expected.values()
    }
    assert all((found[name] == expected[name]).all() for name in expected)


def test_the_marker_equals_the_original_exporters(exported):
    found = json.loads((exported / MARKER).read_text())
    expected = json.loads((FIXTURES / "merged" / MARKER).read_text())
    # A package does not tell its own revision, and this one is not published.
    assert found.pop("checkpoint_revision") == "0" * 40
    expected.pop("checkpoint_revision")
    assert found == expected


def test_the_config_is_the_text_config_itself(exported):
    found = json.loads((exported / "config.json").read_text())
    expected = json.loads((FIXTURES / "merged" / "config.json").read_text())
    same = expected.keys() - {"transformers_version", "use_cache"}
    assert {name: found.get(name) for name in same} == {name: expected[name] for name in same}


def test_an_export_is_served_with_the_answers_of_the_merged_model(exported):
    served = Served(load_of(exported, None))
    for case in CASES[:5]:
        expected = [
            score for each in case["questions"] for score in each["scores_merged_bf16_weights"]
        ]
        assert served.scores(case) == pytest.approx(expected, abs=1e-3)


@pytest.mark.parametrize(
    ("file", "message"),
    [(MARKER, "was never finished"), ("model.safetensors", "missing"), ("tokenizer.json", "miss")],
)
def test_a_half_made_export_is_refused(copy, file, message):
    (copy / file).unlink()
    with pytest.raises(CheckpointError, match=message):
        Served(load_of(copy, None))


def test_a_changed_weight_is_refused_by_its_hash(copy):
    content = bytearray((copy / "model.safetensors").read_bytes())
    content[-1] ^= 1
    (copy / "model.safetensors").write_bytes(content)
    with pytest.raises(CheckpointError, match=r"model\.safetensors: SHA-256 is"):
        Served(load_of(copy, None))


def test_a_changed_temperature_is_refused_by_its_hash(copy):
    text = (copy / MARKER).read_text()
    (copy / MARKER).write_text(text.replace("1.7421875", "1.7421876"))
    with pytest.raises(CheckpointError, match=r"open_jev_export\.json: SHA-256 is"):
        Served(load_of(copy, None))


def test_the_manifest_lists_every_other_file(exported):
    listed = json.loads((exported / MANIFEST).read_text())["files"]
    assert {path.name for path in exported.iterdir()} == {*listed, MANIFEST}


def test_an_export_in_float32_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="use --dtype bfloat16"):
        FAMILIES["openjev"].export(load_of(FIXTURES / "checkpoint", dtype="float32"), tmp_path)


def test_what_is_merged_already_is_not_merged_again(tmp_path):
    load = load_of(FIXTURES / "merged", None, dtype="bfloat16")
    with pytest.raises(ConfigError, match="is merged already"):
        FAMILIES["openjev"].export(load, tmp_path)


def test_a_tokenizers_rule_that_was_in_effect_goes_into_the_export(tmp_path):
    load = load_of(FIXTURES / "checkpoint", dtype="bfloat16", options={"split": "no-marks"})
    FAMILIES["openjev"].export(load, tmp_path)
    assert r"\\p{M}" not in (tmp_path / "tokenizer.json").read_text()
    assert Served(load_of(tmp_path, None)).processor is not None
