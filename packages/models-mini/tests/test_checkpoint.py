"""Files are checked by hash before they are used."""

import json
import shutil

import pytest

from models_mini.checkpoint import SHIPPED, open_checkpoint
from models_mini.executor import MiniExecutor
from models_mini.processor import MiniProcessor
from system1_core import CheckpointError

NAMES = ("encoder.onnx", "head.npz", "tokenizer.json")


@pytest.fixture
def folder(tmp_path):
    shutil.copytree(SHIPPED, tmp_path / "model")
    return tmp_path / "model"


def load(folder):
    checkpoint = open_checkpoint(folder)
    MiniProcessor(checkpoint, 0)
    MiniExecutor(checkpoint, 1)


def test_a_copied_folder_is_served_as_it_is(folder):
    load(folder)


@pytest.mark.parametrize("name", NAMES)
def test_changed_byte_is_refused_by_name_hash_and_remedy(folder, name):
    content = bytearray((folder / name).read_bytes())
    content[len(content) // 2] ^= 1
    (folder / name).write_bytes(content)
    with pytest.raises(CheckpointError, match=rf"{name}: sha256 .* expected .*: reinstall"):
        load(folder)


@pytest.mark.parametrize("name", [*NAMES, "config.json"])
def test_missing_file_is_named(folder, name):
    (folder / name).unlink()
    with pytest.raises(CheckpointError, match=rf"{name}: No such file"):
        load(folder)


@pytest.mark.parametrize("text", ["{", "[]", "{}"])
def test_broken_config_is_refused(folder, text):
    (folder / "config.json").write_text(text)
    with pytest.raises(CheckpointError, match=r"config\.json: not a mini config"):
        load(folder)


def test_unknown_format_is_refused(folder):
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"format": 1}))
    with pytest.raises(CheckpointError, match="format 1, expected 2"):
        load(folder)


def test_shipped_files_stay_under_the_size_of_a_wheel():
    assert sum(path.stat().st_size for path in SHIPPED.iterdir()) < 26_000_000
