"""Which files of a folder are heads, and what they are called."""

import pytest
from conftest import HEADS

from models_clm.checkpoint import CHECKPOINTS, PUBLISHED_SHA256, find_heads
from system1_core import CheckpointError


def make(folder, *names):
    for name in names:
        (folder / name).write_bytes(b"")
    return folder


def test_heads_are_named_by_their_files():
    heads = find_heads(HEADS, "clm_tiny")
    assert heads.names == ("clm-latest", "clm-alt", "clm-plain", "clm-tiny", "clm-raw")
    assert heads.resolve("clm-latest") == "clm-tiny"
    assert heads.resolve("clm-alt") == "clm-alt"


def test_safetensors_wins_over_pt():
    assert find_heads(HEADS, "clm-alt").files["clm-alt"].suffix == ".safetensors"


def test_pt_alone_is_a_head(tmp_path):
    heads = find_heads(make(tmp_path, "CLM_v0.1-8B.pt", "README.md", "config.json"))
    assert heads.default == "clm-v0.1-8b"
    assert heads.files["clm-v0.1-8b"].name == "CLM_v0.1-8B.pt"


def test_model_safetensors_beside_one_pt_is_its_conversion(tmp_path):
    heads = find_heads(make(tmp_path, "CLM_v0.1-8B.pt", "model.safetensors"))
    assert heads.default == "clm-v0.1-8b"
    assert heads.files["clm-v0.1-8b"].name == "model.safetensors"


def test_several_heads_need_a_default(tmp_path):
    with pytest.raises(CheckpointError, match=r"several heads, a, b, expected one.*clm\.default"):
        find_heads(make(tmp_path, "a.pt", "b.safetensors"))


def test_unknown_default_is_refused_with_what_there_is(tmp_path):
    with pytest.raises(CheckpointError, match=r"default=c: no such head, found a, b"):
        find_heads(make(tmp_path, "a.pt", "b.pt"), "c")


def test_folder_without_heads_is_refused(tmp_path):
    with pytest.raises(CheckpointError, match=r"found no head, expected .*system1 pull clm"):
        find_heads(tmp_path)


def test_raw_may_be_the_default_without_any_head(tmp_path):
    assert find_heads(tmp_path, "clm-raw").names == ("clm-latest", "clm-raw")


def test_two_files_of_one_name_are_refused(tmp_path):
    with pytest.raises(CheckpointError, match=r"A_b.pt and a-b.pt would both be 'a-b'"):
        find_heads(make(tmp_path, "a-b.pt", "A_b.pt"))


@pytest.mark.parametrize("name", ["clm-raw", "clm_latest"])
def test_reserved_names_are_refused(tmp_path, name):
    with pytest.raises(CheckpointError, match="rename the file"):
        find_heads(make(tmp_path, f"{name}.pt"), "clm-raw")


def test_published_head_is_pinned_by_content():
    (checkpoint,) = CHECKPOINTS
    assert checkpoint.sha256 == {"CLM_v0.1-8B.pt": PUBLISHED_SHA256}
