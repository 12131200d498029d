"""Every package of the repository in one environment."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from importlib.metadata import distribution, entry_points, version
from pathlib import Path

import pytest

from serving import SYSTEM1, serving
from system1_core.plugins import discover

REPOSITORY = Path(__file__).parents[2]
PROJECTS = [
    tomllib.loads(file.read_text("utf-8"))["project"]
    for folder in ("packages", "examples")
    for file in sorted((REPOSITORY / folder).glob("*/pyproject.toml"))
]


@pytest.mark.parametrize("project", PROJECTS, ids=lambda project: project["name"])
def test_the_installed_version_is_the_repositorys(project: dict[str, str]) -> None:
    assert version(project["name"]) == project["version"]


@pytest.mark.parametrize("project", PROJECTS, ids=lambda project: project["name"])
def test_the_wheel_carries_its_licence(project: dict[str, str]) -> None:
    files = distribution(project["name"]).files or []
    assert any(file.name == "LICENSE" and ".dist-info" in str(file) for file in files)


def test_the_core_is_this_one_and_not_the_registrys() -> None:
    points = {point.name: point.value for point in entry_points(group="system1")}
    assert points["builtin"] == "system1_core.builtin"


def test_every_plugin_works_and_none_clashes() -> None:
    plugins = discover()
    assert [(plugin.name, plugin.error) for plugin in plugins.broken] == []
    declared = {name for one in PROJECTS for name in one.get("entry-points", {}).get("system1", {})}
    assert {plugin.name for plugin in plugins.plugins} == declared


def test_listing_plugins_imports_no_torch() -> None:
    code = (
        "import sys; from system1_core.plugins import discover; discover();"
        "print(*sorted(sys.modules.keys() & {'torch', 'onnxruntime', 'numpy', 'httpx', 'PIL'}))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == []


def test_one_model_is_the_default_of_all() -> None:
    plugins = discover()
    default = plugins.default_family()
    assert default.default_rank >= plugins.family("mini").default_rank > 0


def test_two_families_share_a_process(tmp_path: Path) -> None:
    questions = {"side": {"type": "choice", "criteria": {"heads": None, "tails": None}}}
    with serving("coin", "mini", log=tmp_path / "log.txt") as server:
        replies = [
            server.post("/v1/systemone", {"model": model, "state": "x", "questions": questions})
            for model in ("coin", "mini", "jev-latest")
        ]
    assert [reply.status for reply in replies] == [200] * 3
    assert [reply.json["model"] for reply in replies] == ["coin", "mini", "coin"]


def test_the_command_tells_its_version() -> None:
    ran = subprocess.run([SYSTEM1, "--version"], capture_output=True, text=True, check=True)
    assert ran.stdout == f"system1-core {version('system1-core')}\n"
