"""A loopback hub with one published model, and an empty cache."""

import hashlib

import pytest
from brain_model import FILES, REPO, REVISION

from system1_core.checkpoint import Checkpoint
from system1_core.testing.hub import Hub


@pytest.fixture
def cache(tmp_path, monkeypatch):
    for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HUB_OFFLINE", "HF_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    return tmp_path / "home" / "hub" / "models--acme--brain"


@pytest.fixture
def hub(cache, monkeypatch):
    with Hub() as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        hub.add(REPO, REVISION, FILES)
        yield hub


@pytest.fixture
def make_checkpoint():
    def make(**changes):
        settings = {
            "name": "brain",
            "repo": REPO,
            "revision": REVISION,
            "patterns": ("config.json", "model.safetensors", "tokenizer/*"),
        }
        return Checkpoint(**settings | changes)

    return make


@pytest.fixture
def pins():
    def of(*paths, below=""):
        return {path: hashlib.sha256(FILES[below + path]).hexdigest() for path in paths}

    return of
