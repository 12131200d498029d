"""The loopback hub speaks what huggingface_hub itself asks for."""

from brain_model import FILES, REPO, REVISION
from huggingface_hub import HfApi, hf_hub_download, snapshot_download


def test_a_snapshot_is_downloaded_by_the_library(hub, cache):
    folder = snapshot_download(
        REPO, revision=REVISION, cache_dir=cache.parent, endpoint=hub.url, max_workers=1
    )
    for path, content in FILES.items():
        with open(f"{folder}/{path}", "rb") as file:
            assert file.read() == content


def test_a_branch_leads_to_the_newest_revision(hub, cache):
    hub.add(REPO, "f" * 40, {"config.json": b"newer"})
    path = hf_hub_download(REPO, "config.json", cache_dir=cache.parent, endpoint=hub.url)
    assert f"snapshots/{'f' * 40}/" in path


def test_paths_are_described_on_request(hub):
    (found,) = HfApi(endpoint=hub.url).get_paths_info(
        REPO, ["model.safetensors", "nothing"], revision=REVISION
    )
    assert found.size == len(FILES["model.safetensors"])
    assert found.lfs.sha256 == hub.revisions[REPO][REVISION]["model.safetensors"].sha256


def test_the_tree_lists_every_file(hub):
    tree = HfApi(endpoint=hub.url).list_repo_tree(REPO, recursive=True, revision=REVISION)
    assert {entry.path for entry in tree} == set(FILES)
