"""What goes wrong: one error that names the file, what was found, and what to do."""

import errno
import hashlib
import shutil
import socket
from collections import namedtuple

import pytest
from brain_model import FILES, REPO, REVISION

from system1_core.checkpoint import is_pulled, pull
from system1_core.errors import CheckpointError

WEIGHTS = "model.safetensors"


@pytest.mark.parametrize("pinned", [True, False])
@pytest.mark.parametrize("path", [WEIGHTS, "config.json"])
def test_corrupted_content_is_refused_and_never_used(hub, make_checkpoint, pins, path, pinned):
    checkpoint = make_checkpoint(patterns=(path,), sha256=pins(path) if pinned else {})
    hub.corrupted.add(path)
    with pytest.raises(CheckpointError) as caught:
        pull(checkpoint)
    message = str(caught.value)
    assert path in message
    assert "expected" in message
    assert "system1 pull brain" in message
    assert not is_pulled(checkpoint)
    hub.corrupted.clear()
    assert (pull(checkpoint) / path).read_bytes() == FILES[path]


def test_a_wrong_hash_names_what_was_expected_and_what_was_found(hub, make_checkpoint, pins):
    content = b'{"layers": 9}'
    hub.add(REPO, REVISION, FILES | {"config.json": content})
    with pytest.raises(CheckpointError) as caught:
        pull(make_checkpoint(sha256=pins("config.json")))
    assert pins("config.json")["config.json"] in str(caught.value)
    assert hashlib.sha256(content).hexdigest() in str(caught.value)


def test_a_pin_that_the_hub_contradicts_is_refused_before_the_download(hub, make_checkpoint):
    with pytest.raises(CheckpointError, match=r"model\.safetensors.*expected 0{64} \(pinned\)"):
        pull(make_checkpoint(sha256={WEIGHTS: "0" * 64}))
    assert hub.seen(path="/resolve/") == []


def test_a_file_that_changed_in_the_cache_is_refused_once_and_then_fetched_again(
    hub, make_checkpoint
):
    folder = pull(make_checkpoint())
    (folder / WEIGHTS).resolve().write_bytes(b"tampered")
    with pytest.raises(CheckpointError, match=r"model\.safetensors"):
        pull(make_checkpoint())
    assert (pull(make_checkpoint()) / WEIGHTS).read_bytes() == FILES[WEIGHTS]


def test_a_file_that_was_only_touched_is_proved_again(hub, make_checkpoint):
    folder = pull(make_checkpoint())
    (folder / WEIGHTS).touch()
    assert not is_pulled(make_checkpoint())
    pull(make_checkpoint())
    assert is_pulled(make_checkpoint())


def test_a_pin_that_came_later_judges_what_is_already_here(hub, make_checkpoint):
    pull(make_checkpoint())
    with pytest.raises(CheckpointError, match=r"config\.json.*expected 0{64} \(pinned\)"):
        pull(make_checkpoint(sha256={"config.json": "0" * 64}))


def test_a_damaged_partial_file_is_not_used(hub, cache, make_checkpoint):
    pull(make_checkpoint(patterns=("config.json",)))
    digest = hub.revisions[REPO][REVISION][WEIGHTS].sha256
    (cache / "blobs" / f"{digest}.system1.incomplete").write_bytes(b"noise")
    with pytest.raises(CheckpointError, match=r"model\.safetensors"):
        pull(make_checkpoint())
    assert (pull(make_checkpoint()) / WEIGHTS).read_bytes() == FILES[WEIGHTS]


def test_a_partial_file_that_is_too_long_is_begun_anew(hub, cache, make_checkpoint):
    pull(make_checkpoint(patterns=("config.json",)))
    digest = hub.revisions[REPO][REVISION][WEIGHTS].sha256
    (cache / "blobs" / f"{digest}.system1.incomplete").write_bytes(FILES[WEIGHTS] + b"more")
    assert (pull(make_checkpoint()) / WEIGHTS).read_bytes() == FILES[WEIGHTS]


def test_a_damaged_manifest_only_costs_a_second_look(hub, cache, make_checkpoint):
    pull(make_checkpoint())
    (cache / ".system1" / f"{REVISION}.json").write_text('{"format": 1, "verified": 3}')
    hub.requests.clear()
    pull(make_checkpoint())
    assert hub.seen(path="/resolve/") == []


def test_an_unreachable_hub_is_named_with_the_ways_out(cache, make_checkpoint, monkeypatch):
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{closed.getsockname()[1]}")
        with pytest.raises(CheckpointError) as caught:
            pull(make_checkpoint())
    for part in ("http://127.0.0.1:", "system1 pull brain", "NAME=FOLDER", "HF_ENDPOINT"):
        assert part in str(caught.value)


@pytest.mark.parametrize("way", ["argument", "variable"])
def test_offline_without_the_files_gives_the_remedy(hub, make_checkpoint, monkeypatch, way):
    if way == "variable":
        monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(CheckpointError) as caught:
        pull(make_checkpoint(), offline=way == "argument")
    for part in ("offline", "config.json", "system1 pull brain", "NAME=FOLDER"):
        assert part in str(caught.value)
    assert hub.requests == []


def test_offline_with_the_files_needs_no_hub(hub, make_checkpoint):
    folder = pull(make_checkpoint())
    hub.requests.clear()
    assert pull(make_checkpoint(), offline=True) == folder
    assert hub.requests == []


def test_offline_proves_what_another_tool_fetched_by_the_names_of_its_blobs(
    hub, cache, make_checkpoint
):
    from huggingface_hub import hf_hub_download

    for path in ("config.json", WEIGHTS, "tokenizer/tokenizer.json"):
        hf_hub_download(REPO, path, revision=REVISION, cache_dir=cache.parent, endpoint=hub.url)
    assert (pull(make_checkpoint(), offline=True) / WEIGHTS).read_bytes() == FILES[WEIGHTS]
    assert is_pulled(make_checkpoint())


def test_offline_does_not_trust_what_it_cannot_prove(cache, make_checkpoint):
    folder = cache / "snapshots" / REVISION
    folder.mkdir(parents=True)
    (folder / "config.json").write_bytes(FILES["config.json"])
    with pytest.raises(CheckpointError, match="expected unknown"):
        pull(make_checkpoint(patterns=("config.json",)), offline=True)


@pytest.mark.parametrize(("token", "status"), [(None, "401"), ("hf_other", "403")])
def test_a_gated_repository_asks_for_a_token(hub, make_checkpoint, monkeypatch, token, status):
    hub.token = "hf_secret"
    if token:
        monkeypatch.setenv("HF_TOKEN", token)
    with pytest.raises(CheckpointError, match=rf"acme/brain \({status}\).*HF_TOKEN"):
        pull(make_checkpoint())


def test_an_unknown_repository_is_named(hub, make_checkpoint):
    with pytest.raises(CheckpointError, match="acme/mind"):
        pull(make_checkpoint(repo="acme/mind"))


def test_an_unknown_revision_is_named(hub, make_checkpoint):
    with pytest.raises(CheckpointError, match=f"no revision {'f' * 40}"):
        pull(make_checkpoint(revision="f" * 40))


def test_a_hub_that_answers_for_another_revision_is_refused(hub, make_checkpoint):
    hub.aliases["f" * 40] = REVISION
    with pytest.raises(CheckpointError, match=f"answered with {REVISION}"):
        pull(make_checkpoint(revision="f" * 40))


@pytest.mark.parametrize("file", ["vocab.txt", "encoder/*"])
def test_a_file_that_the_revision_lacks_is_named(hub, make_checkpoint, file):
    with pytest.raises(CheckpointError) as caught:
        pull(make_checkpoint(patterns=("config.json", file)))
    assert repr(file) in str(caught.value)
    assert hub.seen(path="/resolve/") == []


def test_a_pinned_file_that_the_revision_lacks_is_named(hub, make_checkpoint):
    with pytest.raises(CheckpointError, match=r"head\.pt"):
        pull(make_checkpoint(sha256={"head.pt": "0" * 64}))


@pytest.mark.parametrize("part", ["/api/", "/resolve/"])
def test_a_hub_in_trouble_is_named_with_its_status(hub, make_checkpoint, part):
    hub.fail(503, path=part)
    with pytest.raises(CheckpointError, match="answered 503"):
        pull(make_checkpoint())


def test_too_small_a_disk_is_told_before_the_download(hub, make_checkpoint, monkeypatch):
    usage = namedtuple("usage", "total used free")(10, 9, 1)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    with pytest.raises(CheckpointError, match=r"512,026 bytes are missing.*1 free.*HF_HOME"):
        pull(make_checkpoint())
    assert hub.seen(path="/resolve/") == []


@pytest.mark.parametrize(
    ("code", "remedy"), [(errno.ENOSPC, "disk is full"), (errno.EACCES, "HF_HOME")]
)
def test_a_disk_that_refuses_is_named_with_the_remedy(
    hub, make_checkpoint, monkeypatch, code, remedy
):
    def refuse(*args, **kwargs):
        raise OSError(code, "refused")

    monkeypatch.setattr("huggingface_hub.file_download.http_get", refuse)
    with pytest.raises(CheckpointError, match=remedy):
        pull(make_checkpoint())


@pytest.mark.parametrize("path", ["../../../escape.json", "/etc/escape.json"])
def test_a_listing_that_leaves_the_folder_is_refused(hub, make_checkpoint, path):
    hub.add(REPO, REVISION, {path: b"{}"})
    pattern = path.rpartition("/")[0] + "/*"
    with pytest.raises(CheckpointError, match="not a path inside"):
        pull(make_checkpoint(patterns=(pattern,)))
