"""`system1 pull laya` against a hub on loopback that speaks the download API."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from models_laya.checkpoint import CHECKPOINTS
from system1_core.testing.hub import Hub

FIXTURES = Path(__file__).parent / "fixtures"


def system1(*args: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from system1_core.cli import main; main()", *args]
    env = os.environ | environment
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=120)


@pytest.fixture(scope="module")
def hub():
    with Hub() as running:
        for checkpoint in CHECKPOINTS:
            kind = "-multilingual" if checkpoint.name == "multilingual" else ""
            folder = FIXTURES / f"checkpoint{kind}"
            prefix = f"{checkpoint.subfolder}/" if checkpoint.subfolder else ""
            files = {
                prefix + file.relative_to(folder).as_posix(): file.read_bytes()
                for file in folder.rglob("*")
                if file.is_file()
            }
            running.add(checkpoint.repo, checkpoint.revision, files | {"README.md": b"words"})
        yield running


def test_the_pinned_revisions_are_fetched_verified_and_served(hub, tmp_path):
    environment = {"HF_ENDPOINT": hub.url, "HF_HOME": str(tmp_path)}
    pulled = system1("pull", "laya", **environment)
    assert pulled.returncode == 0, pulled.stderr
    lines = pulled.stdout.splitlines()
    assert [line.split()[1] for line in lines] == ["english", "multilingual", "typed-decisions"]
    for checkpoint, line in zip(CHECKPOINTS, lines, strict=True):
        assert checkpoint.revision in line
    offline = {"HF_ENDPOINT": "http://127.0.0.1:9", "HF_HOME": str(tmp_path)}
    checked = system1("check", "laya", "--device", "cpu", **offline)
    assert checked.stdout == "laya: ok\n", checked.stderr


def test_without_a_hub_the_remedy_is_told(tmp_path):
    done = system1("pull", "laya", HF_ENDPOINT="http://127.0.0.1:9", HF_HOME=str(tmp_path))
    assert done.returncode == 2
    assert "HF_ENDPOINT" in done.stderr
    assert "Traceback" not in done.stderr
