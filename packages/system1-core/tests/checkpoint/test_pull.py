"""Fetching: what is asked of the hub, what lands on disk, what is not fetched twice."""

import os
import struct
import subprocess
import sys
import threading

import pytest
from brain_model import FILES, REPO, REVISION

from system1_core.checkpoint import Checkpoint, checkpoint_named, is_pulled, pull, pull_family
from system1_core.errors import CheckpointError
from system1_core.family import ModelFamily

WEIGHTS = "model.safetensors"


def contents(folder):
    paths = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


def test_a_pull_fetches_what_the_patterns_name_and_nothing_else(hub, make_checkpoint):
    wanted = ("config.json", WEIGHTS, "tokenizer/tokenizer.json")
    assert contents(pull(make_checkpoint())) == {path: FILES[path] for path in wanted}


def test_a_star_stays_in_its_folder(hub, make_checkpoint):
    folder = pull(make_checkpoint(patterns=("*.json",)))
    assert contents(folder) == {"config.json": FILES["config.json"]}


def test_a_subfolder_is_the_folder_that_comes_back(hub, make_checkpoint, pins):
    folder = pull(
        make_checkpoint(
            subfolder="small", patterns=("*",), sha256=pins("config.json", WEIGHTS, below="small/")
        )
    )
    assert folder.name == "small"
    assert contents(folder) == {path: FILES[f"small/{path}"] for path in ("config.json", WEIGHTS)}


def test_a_pinned_file_is_fetched_without_a_pattern(hub, make_checkpoint, pins):
    folder = pull(make_checkpoint(patterns=(), sha256=pins("config.json")))
    assert contents(folder) == {"config.json": FILES["config.json"]}


def test_a_second_pull_asks_the_hub_for_nothing(hub, make_checkpoint):
    first = pull(make_checkpoint())
    hub.requests.clear()
    assert pull(make_checkpoint()) == first
    assert hub.requests == []


def test_a_second_pull_hashes_nothing(hub, make_checkpoint, monkeypatch):
    pull(make_checkpoint())
    monkeypatch.delattr("system1_core.checkpoint.sha256_of")
    pull(make_checkpoint())


def test_a_second_checkpoint_of_the_revision_reuses_the_list_of_files(hub, make_checkpoint):
    pull(make_checkpoint())
    hub.requests.clear()
    pull(make_checkpoint(subfolder="small", patterns=("*",)))
    assert hub.seen(path="/api/") == []


def test_only_the_pinned_revision_is_asked_for(hub, make_checkpoint):
    hub.add(REPO, "f" * 40, dict.fromkeys(FILES, b"newer"))
    pull(make_checkpoint())
    assert all(REVISION in each.path for each in hub.seen(path=REPO))
    assert len(hub.seen(path="/resolve/")) == 3


@pytest.fixture
def small_chunks(monkeypatch):
    """The library writes whole chunks of 10 MB; what a cut leaves of one is lost."""
    monkeypatch.setattr("huggingface_hub.constants.DOWNLOAD_CHUNK_SIZE", 10_000)


def test_a_cut_download_goes_on_in_the_same_pull(hub, make_checkpoint, small_chunks, monkeypatch):
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    hub.cut(WEIGHTS, after=100_000)
    assert contents(pull(make_checkpoint()))[WEIGHTS] == FILES[WEIGHTS]
    assert [each.range for each in hub.seen(path="/content/")] == [None, "bytes=100000-"]


def test_the_next_pull_goes_on_where_a_failed_one_stopped(
    hub, make_checkpoint, small_chunks, monkeypatch
):
    hub.cut(WEIGHTS, after=100_000)
    # After a pause it is tried again; by then the hub is down.
    monkeypatch.setattr("time.sleep", lambda seconds: hub.fail(503, path="/resolve/"))
    with pytest.raises(CheckpointError):
        pull(make_checkpoint())
    hub.requests.clear()
    assert contents(pull(make_checkpoint()))[WEIGHTS] == FILES[WEIGHTS]
    assert [each.range for each in hub.seen(path="/content/")] == ["bytes=100000-"]


def test_a_pull_goes_on_as_long_as_bytes_arrive(hub, make_checkpoint, monkeypatch):
    from huggingface_hub import file_download

    def fetch_a_bit(url, out, *, resume_size, expected_size, **settings):
        # An older library, which gives up at the first cut.
        content = FILES[url.rpartition(f"{REVISION}/")[2]]
        out.write(content[resume_size : resume_size + 200_000])
        if resume_size + 200_000 < expected_size:
            raise ConnectionError("cut")

    monkeypatch.setattr(file_download, "http_get", fetch_a_bit)
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    assert contents(pull(make_checkpoint()))[WEIGHTS] == FILES[WEIGHTS]


def test_a_file_that_arrived_whole_before_a_crash_is_not_fetched_again(hub, cache, make_checkpoint):
    pull(make_checkpoint(patterns=("config.json",)))
    digest = hub.revisions[REPO][REVISION][WEIGHTS].sha256
    (cache / "blobs" / f"{digest}.system1.incomplete").write_bytes(FILES[WEIGHTS])
    pull(make_checkpoint())
    assert hub.seen(path=WEIGHTS) == []


def test_an_empty_file_is_a_file(hub, make_checkpoint):
    hub.add(REPO, REVISION, {"empty.txt": b""})
    assert contents(pull(make_checkpoint(patterns=("*",)))) == {"empty.txt": b""}


def test_concurrent_pulls_fetch_each_file_once(hub, make_checkpoint):
    threads = [threading.Thread(target=pull, args=(make_checkpoint(),)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert is_pulled(make_checkpoint())
    assert len(hub.seen(path="/content/")) == 1


def test_a_token_is_sent_when_set(hub, make_checkpoint, monkeypatch):
    hub.token = "hf_secret"
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    pull(make_checkpoint())
    assert {each.token for each in hub.seen(path="/resolve/")} == {"hf_secret"}


def test_is_pulled_tells_whether_every_file_is_here(hub, make_checkpoint):
    assert not is_pulled(make_checkpoint())
    folder = pull(make_checkpoint())
    assert is_pulled(make_checkpoint())
    assert not is_pulled(make_checkpoint(patterns=("*",)))
    (folder / "config.json").unlink()
    assert not is_pulled(make_checkpoint())


def test_a_family_is_pulled_whole_or_by_name(hub, make_checkpoint):
    large = make_checkpoint()
    small = make_checkpoint(name="small", subfolder="small", patterns=("*",))
    family = ModelFamily(
        name="brain", load_processor=None, load_executor=None, checkpoints=(large, small)
    )
    assert pull_family(family, ["small"]) == {"small": pull(small)}
    assert pull_family(family) == {"brain": pull(large), "small": pull(small)}
    assert checkpoint_named(family, "small") is small
    with pytest.raises(CheckpointError, match=r"no checkpoint 'tiny'; it has: brain, small"):
        pull_family(family, ["tiny"])


def test_files_are_linked_to_blobs_as_other_tools_expect(hub, cache, make_checkpoint):
    from huggingface_hub import scan_cache_dir

    pull(make_checkpoint())
    report = scan_cache_dir(cache.parent)
    (repo,) = report.repos
    assert report.warnings == []
    assert repo.repo_id == REPO
    assert {file.file_name for file in next(iter(repo.revisions)).files} >= {WEIGHTS}


def test_a_file_system_without_links_holds_the_files_themselves(hub, make_checkpoint, monkeypatch):
    def refuse(*args, **kwargs):
        raise OSError("no links here")

    monkeypatch.setattr("pathlib.Path.symlink_to", refuse)
    folder = pull(make_checkpoint())
    assert not (folder / WEIGHTS).is_symlink()
    assert (folder / WEIGHTS).read_bytes() == FILES[WEIGHTS]
    assert is_pulled(make_checkpoint())


def test_a_new_process_pulls_through_the_endpoint_of_its_environment(hub, cache):
    code = (
        "import sys; from system1_core.checkpoint import Checkpoint, pull\n"
        "assert 'huggingface_hub' not in sys.modules\n"
        f"print(pull(Checkpoint(name='b', repo={REPO!r}, revision={REVISION!r}, "
        "patterns=['config.json'])))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=os.environ, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == str(cache / "snapshots" / REVISION)
    # Standard error is no terminal here, so it shows no bars.
    assert done.stderr == ""


@pytest.mark.parametrize("progress", [True, False])
def test_a_terminal_sees_bars_unless_told_otherwise(hub, cache, progress):
    fcntl, pty, termios = map(pytest.importorskip, ("fcntl", "pty", "termios"))
    screen, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("4H", 24, 80, 0, 0))
    code = (
        "from system1_core.checkpoint import Checkpoint, pull\n"
        f"pull(Checkpoint(name='b', repo={REPO!r}, revision={REVISION!r}, "
        f"patterns=['config.json']), progress={progress})\n"
    )
    subprocess.run([sys.executable, "-c", code], env=os.environ, stderr=terminal, check=True)
    os.write(terminal, b"end")
    shown = os.read(screen, 10_000)
    os.close(terminal)
    os.close(screen)
    assert (b"config.json: 100%" in shown) is progress


@pytest.mark.parametrize("revision", ["main", "v1.1", "0123abc", "0123ABCD" * 5])
def test_a_revision_that_can_move_is_no_pin(revision):
    with pytest.raises(ValueError, match="commit hash"):
        Checkpoint(name="brain", repo=REPO, revision=revision, patterns=("*",))


def test_a_pin_that_is_no_sha256_is_refused(make_checkpoint):
    with pytest.raises(ValueError, match=r"config\.json"):
        make_checkpoint(sha256={"config.json": "abc"})
