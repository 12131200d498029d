"""Local folders: proved by pins, and never left by a path that a file names."""

import pytest
from brain_model import FILES

from system1_core.checkpoint import safe_join, verify
from system1_core.errors import CheckpointError


@pytest.fixture
def folder(tmp_path):
    for path in ("config.json", "tokenizer/tokenizer.json"):
        target = tmp_path / "copy" / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(FILES[path])
    return tmp_path / "copy"


@pytest.fixture
def pinned(make_checkpoint, pins):
    return make_checkpoint(sha256=pins("config.json", "tokenizer/tokenizer.json"))


def test_a_folder_with_the_pinned_files_passes(folder, pinned):
    (folder / "README.md").write_text("read me")
    (folder / ".cache").mkdir()
    (folder / ".cache" / "notes").write_text("left by a download tool")
    verify(folder, pinned)


def test_a_folder_cannot_be_proved_without_pins(folder, make_checkpoint):
    with pytest.raises(CheckpointError, match="no hashes are pinned"):
        verify(folder, make_checkpoint())


def test_a_changed_file_names_both_hashes_and_the_remedy(folder, pinned):
    (folder / "config.json").write_bytes(b"{}")
    with pytest.raises(CheckpointError) as caught:
        verify(folder, pinned)
    # SHA-256 of "{}".
    found = "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"
    for part in ("config.json", found, pinned.sha256["config.json"], "delete it", "system1 pull"):
        assert part in str(caught.value)


def test_a_missing_file_is_named(folder, pinned):
    (folder / "config.json").unlink()
    with pytest.raises(CheckpointError, match=r"config\.json: missing"):
        verify(folder, pinned)


def test_a_file_beside_the_pinned_ones_is_refused(folder, pinned):
    (folder / "model.safetensors").write_bytes(b"another model")
    with pytest.raises(CheckpointError, match=r"model\.safetensors: no hash"):
        verify(folder, pinned)


def test_a_linked_folder_is_refused(folder, pinned, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (folder / "encoder").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(CheckpointError, match="encoder: no hash"):
        verify(folder, pinned)


@pytest.mark.parametrize(
    "path",
    ["../model", "a/../../b", "/etc/passwd", "C:\\model", "C:model", "a\\..\\b", "a\0b", "", "."],
    ids=repr,
)
def test_a_path_that_leaves_the_folder_is_refused(folder, path):
    with pytest.raises(CheckpointError, match="not a path inside"):
        safe_join(folder, path)


@pytest.mark.parametrize("path", ["model-1.safetensors", "encoder/config.json", "a..b/c"])
def test_a_path_inside_the_folder_is_joined(folder, path):
    assert safe_join(folder, path) == folder / path
