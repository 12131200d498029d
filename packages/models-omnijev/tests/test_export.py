"""The merged form: the same answers from one folder, and no half-made one is served."""

import json
import shutil

import pytest
import torch
from conftest import CASES, FIXTURES, Served, assert_close, body_of, make_load

from models_omnijev.export import export
from models_omnijev.load import load_executor, load_processor
from models_qwen3_5.export import MANIFEST
from system1_core.errors import CheckpointError, ConfigError
from system1_core.testing import serve


@pytest.fixture(scope="module")
def merged(tmp_path_factory):
    folder = tmp_path_factory.mktemp("export") / "merged"
    folder.mkdir()
    export(make_load(), folder)
    return folder


@pytest.fixture
def copied(merged, tmp_path):
    return shutil.copytree(merged, tmp_path / "copy")


def refused(folder, match):
    with pytest.raises(CheckpointError, match=match):
        Served(make_load(folder))


def test_an_export_answers_as_its_parts(merged, served):
    whole = Served(make_load(merged))
    for name in ("speed_3", "region_rounding", "panels_2"):
        found = whole.ask(body_of(CASES[name]))
        assert_close(found["answers"], served.ask(body_of(CASES[name]))["answers"], 1e-6)
        assert_close(found["answers"], CASES[name]["answers"])


def test_an_export_holds_only_the_tokenizers_rows(merged):
    config = json.loads((merged / "config.json").read_text())
    assert config["text_config"]["vocab_size"] == 492
    names = {file.name for file in merged.iterdir()}
    assert not {"head.pt", "adapter_model.safetensors"} & names
    assert {"head.safetensors", "ord.safetensors", "model.safetensors", MANIFEST} <= names


def test_a_bfloat16_export_is_half_as_large_and_keeps_its_heads(merged, tmp_path):
    export(make_load(dtype="bfloat16"), tmp_path)
    sizes = [(folder / "model.safetensors").stat().st_size for folder in (tmp_path, merged)]
    assert sizes[0] < 0.55 * sizes[1]
    assert (tmp_path / "head.safetensors").read_bytes() == (
        merged / "head.safetensors"
    ).read_bytes()
    executor = load_executor(make_load(tmp_path, dtype="bfloat16"))
    assert executor.backbone.dtype == torch.bfloat16
    assert executor.option_head.log_tau.dtype == torch.float32


def test_an_export_is_served_over_http(merged):
    case = CASES["score_2"]
    with serve(f"omnijev={merged}", profile="reference") as server:
        assert_close(server.ask(body_of(case)), case["answers"])


def test_an_export_without_its_manifest_is_refused(copied):
    (copied / MANIFEST).unlink()
    refused(copied, "neither an adapter nor the manifest of a finished export")


@pytest.mark.parametrize("file", ["model.safetensors", "head.safetensors", "head_meta.json"])
def test_a_changed_file_of_an_export_is_refused(copied, file):
    content = bytearray((copied / file).read_bytes())
    content[len(content) // 2] ^= 1
    (copied / file).write_bytes(content)
    refused(copied, f"{file}: SHA-256 is")


def test_a_missing_or_added_file_of_an_export_is_refused(copied):
    (copied / "extra.bin").write_bytes(b"x")
    refused(copied, r"extra.bin: is not part")
    (copied / "extra.bin").unlink()
    (copied / "ord.safetensors").unlink()
    refused(copied, "ord.safetensors: missing")


def test_an_export_of_another_family_is_refused(copied):
    manifest = json.loads((copied / MANIFEST).read_text())
    (copied / MANIFEST).write_text(json.dumps(manifest | {"kind": "other"}))
    refused(copied, "kind 'other'")


def test_an_export_is_not_exported_again(merged, tmp_path):
    with pytest.raises(ConfigError, match="merged already"):
        export(make_load(merged), tmp_path)


def test_an_export_takes_no_base(merged):
    load = make_load(merged)
    load.options["base"] = merged
    with pytest.raises(CheckpointError, match="needs no base"):
        load_processor(load)


def test_a_hostile_head_is_not_exported(tmp_path):
    model = shutil.copytree(FIXTURES / "model", tmp_path / "model")
    file = model / "checkpoint" / "head.pt"
    state = torch.load(file, weights_only=True)
    state["score.bias"].fill_(torch.nan)
    torch.save(state, file)
    (tmp_path / "out").mkdir()
    with pytest.raises(CheckpointError, match="not finite"):
        export(make_load(model), tmp_path / "out")
    assert not list((tmp_path / "out").iterdir())


def test_a_checkpoint_with_a_meta_value_that_means_nothing_is_not_exported(tmp_path):
    model = shutil.copytree(FIXTURES / "model", tmp_path / "model")
    meta = model / "checkpoint" / "head_meta.json"
    meta.write_text(meta.read_text().replace("softmax", "entropy"))
    (tmp_path / "out").mkdir()
    with pytest.raises(CheckpointError, match="norm"):
        export(make_load(model), tmp_path / "out")
