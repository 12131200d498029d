"""Exports: the same model after the merge, and no half-made or changed one is ever loaded."""

import json
from dataclasses import replace

import pytest
import torch
from checkpoints import TEXT, random_tensors, write_adapter, write_checkpoint
from safetensors.torch import load_file, save_file

from models_qwen3_5.backbone import Reads, SequencePrompt
from models_qwen3_5.checkpoint import Parts, load_adapter, load_backbone
from models_qwen3_5.export import MANIFEST, Export, is_export, read_export, write_export
from system1_core.errors import CheckpointError

KIND = "some-model-merged/1"
UP = "layers.1.mlp.up_proj"
PREFIX = "model.language_model."
SEQUENCE = SequencePrompt([1, 7, 3, 40, 2], reads=Reads(hidden=(4,)))


def hidden(folder, parts=None):
    parts = parts or Parts(vision=False, head=False)
    return load_backbone(folder, parts, dtype=torch.bfloat16).forward([SEQUENCE])[0].hidden


@pytest.fixture
def base(tmp_path):
    return write_checkpoint(tmp_path / "base")


@pytest.fixture
def parts(tmp_path):
    adapter = load_adapter(write_adapter(tmp_path / "adapter", {UP: (40, 24)}))
    return Parts(adapter=adapter, vision=False, head=False)


@pytest.fixture
def plan(base, parts):
    files = {"config.json": json.dumps(TEXT).encode(), "note.json": b"{}"}
    return Export(kind=KIND, parts=parts, dtype=torch.bfloat16, files=files, details={"a": [1]})


@pytest.fixture
def out(tmp_path, base, plan):
    folder = tmp_path / "out"
    folder.mkdir()
    write_export(base, plan, folder)
    return folder


def test_an_export_is_the_merged_model(base, parts, out):
    assert torch.equal(hidden(out), hidden(base, parts))


def test_details_come_back_and_files_are_listed(out):
    assert read_export(out, KIND) == {"a": [1]}
    listed = json.loads((out / MANIFEST).read_text())["files"]
    assert set(listed) == {"model.safetensors", "config.json", "note.json"}
    assert is_export(out)


def test_tensors_are_merged_in_float32_and_cast_once(base, parts, out):
    name = f"{PREFIX}{UP}.weight"
    expected = parts.adapter.merge(name, random_tensors(base)[name]).bfloat16()
    found = load_file(out / "model.safetensors")
    assert torch.equal(found[name], expected)
    assert {tensor.dtype for tensor in found.values()} == {torch.bfloat16}
    assert not any(each.startswith(("model.visual.", "lm_head")) for each in found)


def test_shards_and_an_index_hold_the_same_model(base, plan, out, tmp_path):
    sharded = tmp_path / "sharded"
    sharded.mkdir()
    write_export(base, replace(plan, shard_bytes=5_000), sharded)
    shards = list(sharded.glob("model-*-of-*.safetensors"))
    assert len(shards) > 3
    assert torch.equal(hidden(sharded), hidden(out))
    read_export(sharded, KIND)


def test_tensors_are_renamed(base, plan, tmp_path):
    bare = tmp_path / "bare"
    bare.mkdir()
    write_export(base, replace(plan, rename=lambda name: name.removeprefix(PREFIX)), bare)
    assert "embed_tokens.weight" in load_file(bare / "model.safetensors")
    assert torch.equal(hidden(bare), hidden(base, plan.parts))


def test_the_tower_the_head_a_shorter_vocabulary_and_rows_are_kept(base, plan, tmp_path):
    folder = tmp_path / "whole"
    folder.mkdir()
    row = torch.full((24,), 0.5)
    parts = Parts(vocabulary=45, rows={44: row})
    write_export(base, replace(plan, parts=parts, dtype=torch.float32), folder)
    found, tensors = load_file(folder / "model.safetensors"), random_tensors(base)
    assert torch.equal(found["lm_head.weight"], tensors["lm_head.weight"][:45])
    embedding = f"{PREFIX}embed_tokens.weight"
    assert torch.equal(found[embedding][:44], tensors[embedding][:44])
    assert torch.equal(found[embedding][44], row)
    tower = [name for name in tensors if name.startswith("model.visual.")]
    assert all(torch.equal(found[name], tensors[name]) for name in tower)


def test_an_export_that_ends_before_its_manifest_is_refused(out):
    (out / MANIFEST).unlink()
    with pytest.raises(CheckpointError, match=r"never finished.*export the model again"):
        read_export(out, KIND)
    assert not is_export(out)


def test_a_failing_export_leaves_no_manifest(base, plan, tmp_path):
    tensors = random_tensors(base)
    tensors[f"{PREFIX}norm.weight"][3] = float("nan")
    save_file(tensors, base / "model.safetensors")
    folder = tmp_path / "failed"
    folder.mkdir()
    with pytest.raises(CheckpointError, match=r"norm\.weight.*not finite"):
        write_export(base, plan, folder)
    assert not is_export(folder)


def _flip(path):
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


HOSTILE = {
    "missing file": (lambda out: (out / "note.json").unlink(), "note.json: missing"),
    "truncated shard": (
        lambda out: (out / "model.safetensors").write_bytes(b"x" * 40),
        "40 bytes, expected",
    ),
    "wrong hash": (lambda out: _flip(out / "model.safetensors"), "SHA-256 is"),
    "wrong hash of a small file": (lambda out: _flip(out / "note.json"), "SHA-256 is"),
    "added file": (
        lambda out: (out / "model.safetensors.index.json").write_text("{}"),
        "not part of this export",
    ),
    "torn manifest": (
        lambda out: (out / MANIFEST).write_text((out / MANIFEST).read_text()[:-20]),
        "is no manifest",
    ),
    "other manifest": (lambda out: (out / MANIFEST).write_text("[]"), "is no manifest"),
    "path that leaves the folder": (
        lambda out: (out / MANIFEST).write_text(
            (out / MANIFEST).read_text().replace('"note.json"', '"../note.json"')
        ),
        "not a path inside",
    ),
}


@pytest.mark.parametrize(("change", "message"), HOSTILE.values(), ids=HOSTILE.keys())
def test_a_changed_export_is_refused(out, change, message):
    change(out)
    with pytest.raises(CheckpointError, match=message):
        read_export(out, KIND)


def test_large_files_are_hashed_only_on_demand(out):
    _flip(out / "model.safetensors")
    read_export(out, KIND, weights=False)


def test_documents_and_hidden_files_may_lie_beside(out):
    (out / "README.md").write_text("x")
    (out / ".gitattributes").write_text("x")
    read_export(out, KIND)


def test_an_export_of_another_kind_is_refused(out):
    with pytest.raises(CheckpointError, match=r"kind 'some-model-merged/1', expected 'other/1'"):
        read_export(out, "other/1")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.pop(f"{PREFIX}norm.weight"), r"missing .*norm\.weight"),
        (lambda t: t.pop(f"{PREFIX}embed_tokens.weight"), "found no embed_tokens"),
        (lambda t: t.update({"model.extra": torch.zeros(1)}), "'model.extra'"),
        (
            lambda t: t.update({f"{PREFIX}embed_tokens.weight": torch.zeros(49, 24)}),
            r"found shape \[49, 24\], expected at least \[50, 24\]",
        ),
        (
            lambda t: t.update({f"{PREFIX}norm.weight": torch.zeros(24, dtype=torch.int64)}),
            "found torch.int64",
        ),
    ],
    ids=["missing", "no embedding", "extra", "short table", "integers"],
)
def test_a_base_that_is_not_its_configs_is_refused_before_anything_is_written(
    base, plan, tmp_path, change, message
):
    tensors = random_tensors(base)
    change(tensors)
    save_file(tensors, base / "model.safetensors")
    folder = tmp_path / "none"
    folder.mkdir()
    with pytest.raises(CheckpointError, match=message):
        write_export(base, plan, folder)
    assert not list(folder.iterdir())


def test_a_disk_without_room_is_refused(base, plan, tmp_path, monkeypatch):
    usage = type("Usage", (), {"free": 10})
    monkeypatch.setattr("models_qwen3_5.export.shutil.disk_usage", lambda _: usage)
    with pytest.raises(CheckpointError, match="name a folder on a larger disk"):
        write_export(base, plan, tmp_path)
