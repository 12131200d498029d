"""The template is a third party's plugin: core knows nothing of it and serves it all the same."""

from __future__ import annotations

import subprocess
from importlib.metadata import distribution
from pathlib import Path

import system1_core
from serving import SYSTEM1, serving

QUESTIONS = {
    "side": {"type": "choice", "criteria": {"heads": None, "tails": None}},
    "worn": {"type": "score", "criteria": ["new", "used", "worn"]},
    "fair": {"type": "noul", "instructions": "Is it fair?"},
}


def run(*arguments: str) -> str:
    command = [SYSTEM1, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout


def test_core_does_not_know_the_plugin() -> None:
    folder = Path(system1_core.__file__).parent
    sources = [file for file in folder.rglob("*.py") if "coin" in file.read_text("utf-8").lower()]
    assert sources == []
    assert not any("coin" in need for need in distribution("system1-core").requires or ())


def test_the_plugin_comes_from_its_wheel() -> None:
    files = distribution("models-coin").files or []
    assert any(str(file) == "models_coin/plugin.py" for file in files)


def test_it_is_listed_and_passes_its_check() -> None:
    assert "models-coin" in run("plugins")
    assert "coin" in run("models")
    assert run("check", "coin") == "coin: ok\n"


def test_it_answers_in_the_shell() -> None:
    out = run(
        "ask", "It lies on the table.", "--model", "coin", "--choice", "Side? | heads | tails"
    )
    assert "heads" in out
    assert "100.0%" in out


def test_it_is_served_beside_its_aliases(tmp_path: Path) -> None:
    with serving("coin", log=tmp_path / "log.txt") as server:
        answers = server.ask({"model": "coin", "state": "x", "questions": QUESTIONS})
        names = [model["name"] for model in server.get("/v1/models").json["models"]]
    assert answers["side"]["choice"] == "heads"
    assert answers["worn"]["score"] == 0
    assert answers["fair"]["noul"] == 0
    assert names == ["jev-latest", "coin"]
