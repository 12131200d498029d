"""Heads are read again when their file changes."""

import logging
import os
import shutil

import pytest
from conftest import HEADS

from models_clm.heads import Heads
from system1_core import CheckpointError


@pytest.fixture
def file(tmp_path):
    return shutil.copy(HEADS / "clm_tiny.pt", tmp_path / "head.pt")


def touch(file, seconds):
    os.utime(file, (seconds, seconds))


def test_unchanged_file_is_not_read_again(file):
    heads = Heads({"head": file})
    assert heads.current("head") is heads.current("head")


def test_changed_file_is_read_again(file):
    heads = Heads({"head": file})
    assert heads.current("head").scale == 9.0
    shutil.copy(HEADS / "clm_alt.pt", file)
    touch(file, 2_000_000_000)
    assert heads.current("head").scale == 100.0


def test_broken_file_leaves_the_head_until_it_changes_again(file, caplog):
    heads = Heads({"head": file})
    before = heads.current("head")
    file.write_bytes(b"half")
    touch(file, 2_000_000_000)
    with caplog.at_level(logging.WARNING, "system1"):
        assert heads.current("head") is before
        assert heads.current("head") is before
    assert len(caplog.records) == 1
    assert "stays as it was" in caplog.text
    shutil.copy(HEADS / "clm_plain.pt", file)
    touch(file, 2_000_000_001)
    assert heads.current("head").scale == pytest.approx(4.4816890)


def test_removed_file_leaves_the_head(file):
    heads = Heads({"head": file})
    before = heads.current("head")
    file.unlink()
    assert heads.current("head") is before


def test_head_for_another_width_is_refused(file):
    with pytest.raises(CheckpointError, match="a head for embeddings of 64 numbers.*gives 65"):
        Heads({"head": file}, hidden_size=65)
