"""Hostile, damaged and misplaced files: refused with the file, what was found and the remedy."""

import hashlib
import json
import os
import shutil

import pytest
import torch
from conftest import MODEL, Served, ask, make_load
from safetensors.torch import load_file, save_file

from models_omnijev.checkpoint import find_folders, read_meta
from models_omnijev.load import load_executor, load_processor
from models_omnijev.pins import BASE, OMNIJEV
from system1_core.errors import CheckpointError
from system1_core.family import Load

NOUL = {"q": {"type": "noul", "instructions": "It is dark."}}


@pytest.fixture
def model(tmp_path):
    """A copy of the checkpoint and its base."""
    shutil.copytree(MODEL, tmp_path / "model")
    return tmp_path / "model"


@pytest.fixture
def checkpoint(model):
    return model / "checkpoint"


def edit_json(file, **changes):
    values = json.loads(file.read_text())
    file.write_text(json.dumps(values | changes))


def edit_pt(file, change):
    """`change` edits a state dict in place, or gives what takes its place."""
    state = torch.load(file, weights_only=True)
    changed = change(state)
    in_place = isinstance(state, dict) and not isinstance(changed, list)
    torch.save(state if in_place else changed, file)


def refused(model, match):
    with pytest.raises(CheckpointError, match=match) as error:
        Served(make_load(model))
    return str(error.value)


def test_the_pins_are_the_contracts():
    assert OMNIJEV.revision == "ffe5f436eaf22e20e2f041f8e74e121fd057a6cb"
    assert set(OMNIJEV.sha256) == set(OMNIJEV.patterns)
    assert len(BASE.sha256) == 4


def test_a_bias_of_another_type_is_refused(model, checkpoint):
    edit_json(checkpoint / "head_meta.json", biases={"noul": 0.1, "choice": 0.0})
    refused(model, r"head_meta.json: biases.choice")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("norm", "entropy"),
        ("lm_feats", False),
        ("ordinal", None),
        ("temperatures", {"noul": 0}),
        ("temperatures", {"box": 1.0}),
        ("temperatures", {"noul": "1"}),
        ("temperatures", [1]),
        ("temperature", -1.0),
        ("biases", {"noul": True}),
    ],
)
def test_a_meta_value_that_means_nothing_is_refused(model, checkpoint, key, value):
    edit_json(checkpoint / "head_meta.json", **{key: value})
    assert key in refused(model, r"head_meta.json.*fetch")


def test_an_infinite_temperature_is_refused(model, checkpoint):
    text = (checkpoint / "head_meta.json").read_text()
    (checkpoint / "head_meta.json").write_text(text.replace("1.1991", "Infinity"))
    refused(model, r"head_meta.json: temperatures.noul is inf")


def test_an_absent_norm_means_sigmoid(checkpoint):
    values = json.loads((checkpoint / "head_meta.json").read_text())
    del values["norm"], values["temperatures"], values["biases"]
    (checkpoint / "head_meta.json").write_text(json.dumps(values | {"temperature": 1.5}))
    meta = read_meta(checkpoint)
    assert not meta.is_softmax
    assert meta.calibration.temperature("choice") == 1.5
    assert meta.calibration.biases == {}


@pytest.mark.parametrize("file", ["head.pt", "ord.pt", "new_tok_emb.pt"])
def test_pickled_code_never_runs(model, checkpoint, file, tmp_path):
    class Hostile:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "ran"),)

    torch.save(Hostile(), checkpoint / file)
    refused(model, rf"{file}: holds more than tensors")
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("file", "change", "match"),
    [
        ("head.pt", lambda s: s.pop("log_tau"), "missing log_tau"),
        ("head.pt", lambda s: s.update(more=torch.zeros(1)), "unexpected more"),
        ("head.pt", lambda s: s["score.bias"].fill_(torch.nan), "score.bias.*not finite"),
        ("head.pt", lambda s: s.update({"score.bias": s["score.bias"].half()}), "float16"),
        ("head.pt", lambda s: s.update({"log_tau": torch.zeros(2)}), r"found shape \[2\]"),
        ("head.pt", lambda s: s.update({"log_tau": 5}), "found int"),
        ("head.pt", lambda s: [s], "holds a list"),
        ("ord.pt", lambda s: s["z.2.bias"].fill_(torch.inf), "z.2.bias.*not finite"),
        ("ord.pt", lambda s: s.pop("cut.0.bias"), "missing cut.0.bias"),
        ("new_tok_emb.pt", lambda s: s[:1].clone(), r"found shape \[1, 64\]"),
        ("new_tok_emb.pt", lambda s: s.bfloat16(), "bfloat16"),
        ("new_tok_emb.pt", lambda s: s * torch.nan, "not finite"),
    ],
)
def test_a_head_that_is_not_as_expected_is_refused(model, checkpoint, file, change, match):
    edit_pt(checkpoint / file, change)
    refused(model, rf"{file}.*{match}")


def test_a_truncated_head_is_refused(model, checkpoint):
    content = (checkpoint / "head.pt").read_bytes()
    (checkpoint / "head.pt").write_bytes(content[: len(content) // 2])
    refused(model, "head.pt: is no torch file")


def test_a_missing_head_is_refused(model, checkpoint):
    (checkpoint / "ord.pt").unlink()
    refused(model, "ord.pt: missing")


def test_safetensors_wins_over_pt(model, checkpoint):
    state = torch.load(checkpoint / "head.pt", weights_only=True)
    save_file(state, checkpoint / "head.safetensors")
    (checkpoint / "head.pt").write_bytes(b"never read")
    load_processor(make_load(model))
    state["log_tau"] = state["log_tau"] * torch.nan
    save_file(state, checkpoint / "head.safetensors")
    refused(model, r"head.safetensors.*log_tau.*not finite")


def test_a_truncated_adapter_is_refused(model, checkpoint):
    file = checkpoint / "adapter_model.safetensors"
    file.write_bytes(file.read_bytes()[:-100])
    refused(model, "adapter_model.safetensors")


def test_half_of_an_adapter_pair_is_refused(model, checkpoint):
    file = checkpoint / "adapter_model.safetensors"
    tensors = load_file(file)
    tensors.pop(next(iter(sorted(tensors))))
    save_file(tensors, file)
    refused(model, "odd tensors")


def test_a_base_of_another_size_is_refused(model):
    config = json.loads((model / "base" / "config.json").read_text())
    config["text_config"]["vocab_size"] = 400
    (model / "base" / "config.json").write_text(json.dumps(config))
    refused(model, "492 tokens, the base has 400 rows")


def test_a_base_without_a_tower_is_refused(model):
    config = json.loads((model / "base" / "config.json").read_text())
    del config["vision_config"]
    (model / "base" / "config.json").write_text(json.dumps(config))
    refused(model, "no vision tower")


def test_a_base_with_another_placeholder_is_refused(model):
    edit_json(model / "base" / "config.json", image_token_id=3)
    refused(model, "image placeholder is token 486, the base has 3")


def test_an_extra_tensor_in_the_base_is_refused(model):
    file = model / "base" / "model.safetensors"
    save_file(load_file(file) | {"model.more": torch.zeros(1)}, file)
    refused(model, "model.more")


def test_a_tokenizer_without_option_markers_is_refused(model, checkpoint):
    text = (checkpoint / "tokenizer.json").read_text().replace("<|opt|>", "<|other|>")
    (checkpoint / "tokenizer.json").write_text(text)
    refused(model, r"tokenizer.json: '<\|opt\|>' takes")


@pytest.mark.parametrize("template", ["{{ 1 }}", "{% for %}", "x<|image_pad|>"])
def test_a_template_that_hides_the_picture_is_refused(model, checkpoint, template):
    (checkpoint / "chat_template.jinja").write_text(template)
    refused(model, "chat_template.jinja")


def test_an_image_processor_of_other_patches_is_refused(model, checkpoint):
    values = json.loads((checkpoint / "processor_config.json").read_text())
    values["image_processor"]["patch_size"] = 14
    (checkpoint / "processor_config.json").write_text(json.dumps(values))
    refused(model, r"patches of \(14, 2\)")


def write_manifest(checkpoint, **changes):
    files = {
        file.name: {
            "bytes": file.stat().st_size,
            "sha256": hashlib.sha256(file.read_bytes()).hexdigest(),
        }
        for file in checkpoint.iterdir()
    }
    manifest = {"release": "v1.1", "files": files | changes}
    (checkpoint / "release_manifest.json").write_text(json.dumps(manifest))


def test_a_true_release_manifest_is_accepted(model, checkpoint):
    write_manifest(checkpoint)
    load_executor(make_load(model))


@pytest.mark.parametrize(
    ("name", "entry", "match"),
    [
        ("head.pt", {"bytes": 1, "sha256": "0" * 64}, "bytes, expected 1"),
        ("../base/config.json", {"bytes": 1, "sha256": "0" * 64}, "is not a path inside"),
        ("gone.bin", {"bytes": 1, "sha256": "0" * 64}, "gone.bin: missing"),
        ("head.pt", None, "is no release manifest"),
    ],
)
def test_a_release_manifest_is_held_to(model, checkpoint, name, entry, match):
    write_manifest(checkpoint, **{name: entry})
    refused(model, match)


def test_a_wrong_hash_in_the_release_manifest_is_refused(model, checkpoint):
    size = (checkpoint / "head.pt").stat().st_size
    write_manifest(checkpoint, **{"head.pt": {"bytes": size, "sha256": "0" * 64}})
    refused(model, r"head.pt: SHA-256 is [0-9a-f]{64}, expected 0{64}")


def test_a_shard_outside_the_folder_is_refused(model):
    base = model / "base"
    (base / "model.safetensors").rename(model / "stolen.safetensors")
    index = {"weight_map": {"model.language_model.norm.weight": "../stolen.safetensors"}}
    (base / "model.safetensors.index.json").write_text(json.dumps(index))
    refused(model, "is not the name of a file in this folder")


def test_a_folder_that_is_no_checkpoint_is_refused(tmp_path):
    refused(tmp_path, "found no head_meta.json")


def test_the_base_comes_by_option_beside_the_checkpoint_or_pinned(model, tmp_path):
    pinned = Load(family="omnijev", fetch=lambda name: tmp_path / name)
    assert find_folders(pinned).checkpoint == tmp_path / "omnijev-4b-v1.1"
    assert find_folders(pinned).base == tmp_path / "base"
    named = Load(family="omnijev", folder=model)
    assert find_folders(named).base == model / "base"
    other = Load(family="omnijev", folder=model, options={"base": tmp_path})
    assert find_folders(other).base == tmp_path
    alone = Load(family="omnijev", folder=model / "checkpoint", fetch=lambda name: tmp_path / name)
    assert find_folders(alone).base == tmp_path / "base"


def test_rows_beyond_the_tokenizer_never_count(served, model):
    """They would enter the denominator of every log-probability."""
    body = ask({"q": {"type": "choice", "instructions": "x", "criteria": {"a": None, "bc": None}}})
    request = served.parse(body)
    rows = served.processor.prepare(request).prompts
    cut = served.executor.execute(rows)
    table = load_file(model / "base" / "model.safetensors")
    name = next(key for key in table if key.endswith("embed_tokens.weight"))
    assert table[name].shape[0] == 512
    assert served.executor.backbone.text.embed_tokens.shape[0] == 492
    table[name][492:] = 3 * table[name][:20]
    save_file(table, model / "base" / "model.safetensors")
    poisoned = Served(make_load(model))
    for found, expected in zip(poisoned.executor.execute(rows), cut, strict=True):
        assert found.logprobs == pytest.approx(expected.logprobs, abs=1e-6)
