"""The servers that the tests meet, each started once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from serving import Serving, serving

REPOSITORY = Path(__file__).parents[2]
LAYA = REPOSITORY / "packages/models-laya/tests/fixtures/checkpoint"

KEYS = ("first-key-of-the-tests", "second-key-of-the-tests")

# What `system1 serve` is given: the embedded model, and a small LAYA checkpoint in the official
# layout whose 255 options need its tournament.
MODELS = {"mini": ("mini",), "laya": (f"laya-english={LAYA}",)}


@pytest.fixture(scope="session")
def key_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("keys") / "keys.txt"
    file.write_text("# keys of the tests\n" + "\n".join(KEYS) + "\n", "utf-8")
    return file


@pytest.fixture(scope="session", params=MODELS)
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Serving]:
    """Each model in turn, open to everybody."""
    log = tmp_path_factory.mktemp("server") / "log.txt"
    with serving(*MODELS[request.param], log=log) as running:
        yield running


@pytest.fixture(scope="session", params=MODELS)
def locked_server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, key_file: Path
) -> Iterator[Serving]:
    """Each model in turn, behind keys."""
    log = tmp_path_factory.mktemp("server") / "log.txt"
    arguments = (*MODELS[request.param], "--api-key-file", str(key_file))
    with serving(*arguments, log=log) as running:
        yield running


@pytest.fixture(scope="session")
def mini(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """The embedded model with small limits, so that they can be met."""
    log = tmp_path_factory.mktemp("server") / "log.txt"
    limits = ("--max-body-mib", "1", "--max-decoded-mib", "2", "--body-timeout", "1")
    with serving("mini", *limits, log=log) as running:
        yield running


@pytest.fixture
def slow(tmp_path: Path) -> Iterator[Serving]:
    """A model that takes as long as it is told to; a new process for each test."""
    with serving("slow", "--max-queue", "4", log=tmp_path / "log.txt") as running:
        yield running
