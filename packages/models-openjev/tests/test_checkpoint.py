"""Files that are not what they say are refused, with the file, what is wrong and a remedy."""

import json
import shutil

import pytest
import torch
from conftest import FIXTURES, Served, load_of
from safetensors.torch import load_file, save_file

from models_openjev.checkpoint import open_source
from models_openjev.identity import OPEN_JEV_9B, OPEN_JEV_27B
from system1_core.errors import CheckpointError

UP = "base_model.model.layers.0.linear_attn.in_proj_qkv"
NORM = "layers.0.input_layernorm.weight"


@pytest.fixture
def copies(tmp_path):
    """Package, base and merged export that a test may spoil."""
    return {name: shutil.copytree(FIXTURES / name, tmp_path / name) for name in _LAYOUTS}


_LAYOUTS = ("checkpoint", "base", "merged")


def edit_json(file, **changes):
    values = json.loads(file.read_text())
    values.update(changes)
    file.write_text(json.dumps({name: value for name, value in values.items() if value is not ...}))


def edit_tensors(file, change):
    tensors = load_file(file)
    change(tensors)
    save_file(tensors, file)


def edit_head(file, **changes):
    state = torch.load(file, weights_only=True) | changes
    torch.save({name: value for name, value in state.items() if value is not None}, file)


class _Code:
    def __reduce__(self):
        return (print, ("ran",))


def _truncate(file):
    file.write_bytes(file.read_bytes()[:-64])


PACKAGE = {
    "other method": (lambda p: edit_json(p / "model.json", method="x"), "method is 'x', expected"),
    "no model id": (lambda p: edit_json(p / "model.json", model_id=...), "model_id is missing"),
    "short revision": (lambda p: edit_json(p / "model.json", revision="abc"), "40 lower-case hex"),
    "too long": (lambda p: edit_json(p / "model.json", max_length=16385), "from 1 to 16384"),
    "length is true": (lambda p: edit_json(p / "model.json", max_length=True), "positive integer"),
    "other rank": (lambda p: edit_json(p / "model.json", lora_rank=4), "rank 8 and scale 2"),
    "zero temperature": (
        lambda p: edit_json(p / "temperature.json", temperature=0),
        "temperature is 0, expected a number above 0",
    ),
    "infinite temperature": (
        lambda p: (p / "temperature.json").write_text('{"temperature": Infinity}'),
        "temperature is inf",
    ),
    "no temperature": (lambda p: (p / "temperature.json").unlink(), "temperature.json: missing"),
    "json list": (lambda p: (p / "temperature.json").write_text("[]"), "is a list"),
    "no json": (lambda p: (p / "temperature.json").write_text("{"), "is no JSON"),
    "no head": (lambda p: (p / "head.pt").unlink(), "head.pt: missing"),
    "code in the head": (
        lambda p: torch.save({"weight": _Code()}, p / "head.pt"),
        "pickled code could run",
    ),
    "head cut off": (lambda p: _truncate(p / "head.pt"), "is no torch file"),
    "head is a tensor": (lambda p: torch.save(torch.ones(3), p / "head.pt"), "no state dict"),
    "head without bias": (lambda p: edit_head(p / "head.pt", bias=None), "missing bias"),
    "head with more": (
        lambda p: edit_head(p / "head.pt", scale=torch.ones(1)),
        "unexpected scale",
    ),
    "head of another size": (
        lambda p: edit_head(p / "head.pt", weight=torch.ones(1, 31)),
        r"found shape \[1, 31\], expected \[1, 32\]",
    ),
    "head in float64": (
        lambda p: edit_head(p / "head.pt", bias=torch.ones(1, dtype=torch.float64)),
        "'bias': found torch.float64, expected torch.float32",
    ),
    "NaN in the head": (
        lambda p: edit_head(p / "head.pt", bias=torch.full((1,), float("nan"))),
        "'bias': holds a value that is not finite",
    ),
    "adapter cut off": (
        lambda p: _truncate(p / "adapter/adapter_model.safetensors"),
        "expected .* by its header",
    ),
    "half a pair": (
        lambda p: edit_tensors(
            p / "adapter/adapter_model.safetensors", lambda t: t.pop(f"{UP}.lora_A.weight")
        ),
        "1 odd tensors",
    ),
    "a module less": (
        lambda p: edit_tensors(
            p / "adapter/adapter_model.safetensors",
            lambda t: [t.pop(f"{UP}.lora_{half}.weight") for half in "AB"],
        ),
        "adapts 9 modules .*expected 10 modules",
    ),
    "other alpha": (
        lambda p: edit_json(p / "adapter/adapter_config.json", lora_alpha=32),
        "rank 8 and scale 4, expected rank 8 by model.json and scale 2",
    ),
    "not plain LoRA": (
        lambda p: edit_json(p / "adapter/adapter_config.json", use_dora=True),
        "not plain LoRA",
    ),
}


@pytest.mark.parametrize(("spoil", "message"), PACKAGE.values(), ids=PACKAGE.keys())
def test_a_spoiled_package_is_refused(copies, spoil, message):
    spoil(copies["checkpoint"])
    with pytest.raises(CheckpointError, match=message) as caught:
        Served(load_of(copies["checkpoint"], copies["base"]))
    assert str(copies["checkpoint"]) in str(caught.value)


def edit_text_config(folder, **changes):
    values = json.loads((folder / "config.json").read_text())
    values["text_config"] |= changes
    (folder / "config.json").write_text(json.dumps(values))


BASE = {
    "cut off": (lambda b: _truncate(b / "model.safetensors"), "by its header"),
    "tensor missing": (
        lambda b: edit_tensors(
            b / "model.safetensors", lambda t: t.pop(f"model.language_model.{NORM}")
        ),
        "missing model.language_model.layers.0",
    ),
    "tensor too many": (
        lambda b: edit_tensors(
            b / "model.safetensors", lambda t: t.update({"model.more": torch.ones(1)})
        ),
        "'model.more'",
    ),
    "integers": (
        lambda b: edit_tensors(
            b / "model.safetensors",
            lambda t: t.update({f"model.language_model.{NORM}": torch.ones(32, dtype=torch.int32)}),
        ),
        "found torch.int32",
    ),
    "other conv": (
        lambda b: edit_text_config(b, linear_conv_kernel_dim=3),
        "linear_conv_kernel_dim is 3, expected 4",
    ),
    "other head": (lambda b: edit_text_config(b, linear_key_head_dim=64), "linear_key_head_dim"),
    "other layers": (
        lambda b: edit_text_config(b, layer_types=["full_attention"] * 4),
        "layer_types is .*expected",
    ),
    "no template": (lambda b: (b / "chat_template.jinja").unlink(), "chat_template"),
    "template without the text": (
        lambda b: (b / "chat_template.jinja").write_text("hello"),
        "shows a user's turn 0 times",
    ),
    "template that reaches out": (
        lambda b: (b / "chat_template.jinja").write_text("{{ ''.__class__.__mro__ }}"),
        "cannot render",
    ),
    "no tokenizer": (lambda b: (b / "tokenizer.json").unlink(), "tokenizer.json: missing"),
    "shard outside": (
        lambda b: (b / "model.safetensors.index.json").write_text(
            json.dumps({"weight_map": {"x": "../checkpoint/adapter/adapter_model.safetensors"}})
        ),
        "is not the name of a file in this folder",
    ),
}


@pytest.mark.parametrize(("spoil", "message"), BASE.values(), ids=BASE.keys())
def test_a_spoiled_base_is_refused(copies, spoil, message):
    spoil(copies["base"])
    with pytest.raises(CheckpointError, match=message):
        Served(load_of(copies["checkpoint"], copies["base"]))


MERGED = {
    "never finished": (lambda m: (m / "open_jev_export.json").unlink(), "was never finished"),
    "torn marker": (lambda m: _truncate(m / "open_jev_export.json"), "is no JSON"),
    "other format": (
        lambda m: edit_json(m / "open_jev_export.json", format="x/1"),
        "format is 'x/1', expected 'open-jev-text-merged/1'",
    ),
    "no suffix": (
        lambda m: edit_json(m / "open_jev_export.json", chat_suffix=...),
        "chat_suffix is missing",
    ),
    "short head": (
        lambda m: edit_json(m / "open_jev_export.json", head_weight=[1.0]),
        "head_weight is 1 values, expected 32",
    ),
    "NaN in the head": (
        lambda m: edit_json(m / "open_jev_export.json", head_weight=[float("nan")] * 32),
        "no finite number",
    ),
    "text in the head": (
        lambda m: edit_json(m / "open_jev_export.json", head_bias="1"),
        "no finite number",
    ),
    "huge number": (
        lambda m: edit_json(m / "open_jev_export.json", head_bias=10**400),
        "no finite number",
    ),
    "float32 tensor": (
        lambda m: edit_tensors(m / "model.safetensors", lambda t: t.update({NORM: torch.ones(32)})),
        f"'{NORM}': found torch.float32, expected torch.bfloat16",
    ),
    "tensor missing": (
        lambda m: edit_tensors(m / "model.safetensors", lambda t: t.pop(NORM)),
        f"missing {NORM}",
    ),
    "cut off": (lambda m: _truncate(m / "model.safetensors"), "by its header"),
}


@pytest.mark.parametrize(("spoil", "message"), MERGED.values(), ids=MERGED.keys())
def test_a_spoiled_export_is_refused(copies, spoil, message):
    spoil(copies["merged"])
    with pytest.raises(CheckpointError, match=message) as caught:
        Served(load_of(copies["merged"], None))
    assert str(copies["merged"]) in str(caught.value)


@pytest.mark.parametrize("name", ["checkpoint", "merged"])
def test_an_unknown_checkpoint_can_be_refused(name):
    load = load_of(FIXTURES / name, options={"unknown": "refuse"})
    with pytest.raises(CheckpointError, match=r"none of the published.*openjev\.unknown=refuse"):
        open_source(load, OPEN_JEV_9B)


def test_a_base_of_other_sizes_is_refused_for_a_published_checkpoint(copies):
    package = copies["checkpoint"]
    known = {"model_id": OPEN_JEV_9B.model_id, "revision": OPEN_JEV_9B.base_revision}
    edit_json(package / "model.json", **known)
    edit_json(package / "temperature.json", temperature=OPEN_JEV_9B.temperature, n=512)
    load = load_of(package, copies["base"], options={"unknown": "refuse"})
    source = open_source(load, OPEN_JEV_27B)
    assert source.published is OPEN_JEV_9B
    assert source.checkpoint_revision == OPEN_JEV_9B.checkpoint_revision
    with pytest.raises(CheckpointError, match="is 32, expected 4096 for Qwen/Qwen3.5-9B"):
        Served(load)


def test_another_temperature_is_another_checkpoint(copies):
    package = copies["checkpoint"]
    known = {"model_id": OPEN_JEV_9B.model_id, "revision": OPEN_JEV_9B.base_revision}
    edit_json(package / "model.json", **known)
    load = load_of(package, copies["base"], options={"unknown": "refuse"})
    with pytest.raises(CheckpointError, match="temperature 1.7421875 is none of the published"):
        open_source(load, OPEN_JEV_9B)


def test_without_a_folder_package_and_base_are_pulled(copies):
    fetched = []

    def fetch(name):
        fetched.append(name)
        return copies["base" if name.endswith("-base") else "checkpoint"]

    known = {"model_id": OPEN_JEV_9B.model_id, "revision": OPEN_JEV_9B.base_revision}
    edit_json(copies["checkpoint"] / "model.json", **known)
    edit_json(copies["checkpoint"] / "temperature.json", temperature=OPEN_JEV_9B.temperature)
    source = open_source(load_of(None, None, fetch=fetch), OPEN_JEV_9B)
    assert fetched == ["open-jev-9b", "open-jev-9b-base"]
    assert source.base == copies["base"]


def test_the_root_of_a_published_repository_is_a_package_too(tmp_path):
    shutil.copytree(FIXTURES / "checkpoint", tmp_path / "package" / "checkpoint")
    assert open_source(load_of(tmp_path), OPEN_JEV_9B).folder == tmp_path / "package" / "checkpoint"


def test_an_unknown_adapter_without_a_base_is_refused():
    with pytest.raises(CheckpointError, match=r"name it with --option openjev\.base=FOLDER"):
        open_source(load_of(FIXTURES / "checkpoint", None), OPEN_JEV_9B)


def test_a_base_that_is_no_folder_is_refused(tmp_path):
    with pytest.raises(CheckpointError, match=r"openjev\.base: there is no folder"):
        open_source(load_of(FIXTURES / "checkpoint", tmp_path / "none"), OPEN_JEV_9B)


def test_an_empty_folder_is_neither_layout(tmp_path):
    with pytest.raises(CheckpointError, match=r"neither model\.json.*nor open_jev_export\.json"):
        open_source(load_of(tmp_path), OPEN_JEV_9B)


def test_a_missing_length_in_an_export_is_the_published_one(copies):
    edit_json(copies["merged"] / "open_jev_export.json", max_length=...)
    assert open_source(load_of(copies["merged"], None), OPEN_JEV_9B).max_length == 4096
