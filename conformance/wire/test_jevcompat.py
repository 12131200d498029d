"""The protocol's own suite, by its command."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from conftest import KEYS

from serving import Serving

JEVCOMPAT = str(Path(sys.executable).with_name("jevcompat"))


def jevcompat(server: Serving, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the suite; its exit status is 0 only when every MUST that applies passes."""
    command = [JEVCOMPAT, "test", server.url, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)


def test_every_requirement_passes_without_a_key(server: Serving) -> None:
    run = jevcompat(server)
    assert run.returncode == 0, run.stdout + run.stderr
    assert "MUST 32/32, SHOULD 13/13" in run.stdout, run.stdout


def test_every_requirement_passes_with_a_key(locked_server: Serving) -> None:
    run = jevcompat(locked_server, "--key", KEYS[0])
    assert run.returncode == 0, run.stdout + run.stderr
    assert "MUST 32/32, SHOULD 15/15" in run.stdout, run.stdout
