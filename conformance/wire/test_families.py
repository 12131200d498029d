"""Every family's recorded requests through the official Python SDK, in the protocol profile."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import pytest
import typesafe_sdk as sdk

from serving import serving

PACKAGES = Path(__file__).parents[2] / "packages"
FIXTURES = {
    name: PACKAGES / f"models-{name}" / "tests" / "fixtures"
    for name in ("openjev", "cuas1", "omnijev", "qwen3-5", "clm")
}
SHAPES = {"choice": sdk.Choice, "score": sdk.Score, "noul": sdk.Noul}
MAX_CASES = 12


def ask(url: str, cases: list[tuple[Any, dict[str, Any]]]) -> int:
    """Ask each state with its questions; how many could be put in the SDK's words."""
    count = 0
    with sdk.TypeSafeClient(api_key="any", base_url=url, timeout=60) as client:
        for state, entries in cases[:MAX_CASES]:
            questions = {name: as_question(entry) for name, entry in entries.items()}
            if state in (None, "", {}, []) or None in questions.values():
                continue
            response = client.system_one(state=state, questions=questions)
            for name, entry in entries.items():
                check(response, name, entry)
            count += 1
    return count


def as_question(entry: dict[str, Any]) -> Any:
    """The SDK's question, None where the protocol has no such question."""
    fields = {key: entry[key] for key in ("instructions", "criteria") if entry.get(key) is not None}
    if set(entry) - {"type", "instructions", "criteria"}:
        return None
    wanted = {"choice": dict, "score": list, "noul": dict}[entry["type"]]
    if not isinstance(fields.get("criteria", wanted()), wanted):
        return None
    try:
        return SHAPES[entry["type"]](**fields)
    except (TypeError, ValueError, sdk.TypeSafeError):
        return None


def check(response: Any, name: str, entry: dict[str, Any]) -> None:
    if entry["type"] == "choice":
        assert list(response.choices[name].probabilities) == list(entry["criteria"])
        assert sum(response.choices[name].probabilities.values()) == pytest.approx(1, abs=1e-6)
    elif entry["type"] == "score":
        assert 0 <= response.scores[name].score <= len(entry["criteria"]) - 1
    else:
        assert 0 <= response.nouls[name].noul <= 1


def test_open_jev_in_both_layouts(tmp_path: Path) -> None:
    here = FIXTURES["openjev"]
    recorded = json.loads((here / "requests.json").read_text("utf-8"))
    cases = [(case["request"]["state"], case["request"]["questions"]) for case in recorded]
    for folder in ("checkpoint", "merged"):
        arguments = (f"openjev={here / folder}", "--option", f"openjev.base={here / 'base'}")
        with serving(*arguments, log=tmp_path / folder) as server:
            assert ask(server.url, cases) >= 8


def test_cua_s1_by_text_and_by_picture(tmp_path: Path) -> None:
    here = FIXTURES["cuas1"]
    recorded = json.loads((here / "text_cases.json").read_text("utf-8"))
    cases = [(case["request"]["state"], case["request"]["questions"]) for case in recorded]
    picture = sdk.Image((here / "images" / "small.png").read_bytes())
    cases.insert(0, (picture, cases[0][1]))
    arguments = (f"cuas1={here / 'adapter'}", "--option", f"cuas1.base={here / 'base'}")
    with serving(*arguments, log=tmp_path / "log") as server:
        assert ask(server.url, cases) >= 8


def test_omnijev_about_pictures(tmp_path: Path) -> None:
    here = FIXTURES["omnijev"]
    cases = []
    for file in sorted((here / "requests").glob("*.json")):
        case = json.loads(file.read_text("utf-8"))
        pictures = case["state"]["images"]
        if "video" not in case["state"]:
            content = [sdk.Image((here / "images" / name).read_bytes()) for name in pictures]
            cases.append((content, case["questions"]))
    with serving(f"omnijev={here / 'model'}", log=tmp_path / "log") as server:
        assert ask(server.url, cases) >= 3


def test_clm_over_an_embedding_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = FIXTURES["clm"]
    # The stub that the package itself is tested with stands beside its tests.
    monkeypatch.syspath_prepend(str(here.parent))
    serve_stub = importlib.import_module("stub_server").serve_stub
    recorded = json.loads((here / "requests.json").read_text("utf-8"))
    cases = [(case["request"]["state"], case["request"]["questions"]) for case in recorded]
    with serve_stub() as stub:
        arguments = (
            f"clm={here / 'checkpoint'}",
            *("--option", f"clm.embeddings_url={stub.url}", "--option", "clm.default=clm_tiny"),
        )
        with serving(*arguments, log=tmp_path / "log") as server:
            assert ask(server.url, cases) >= 8


def test_a_plain_qwen_checkpoint(tmp_path: Path) -> None:
    here = FIXTURES["qwen3-5"]
    question = {
        "team": {
            "type": "choice",
            "instructions": "Which team?",
            "criteria": {"a": None, "b": "x"},
        },
        "urgency": {"type": "score", "instructions": "How urgent?", "criteria": ["low", "high"]},
        "refund": {"type": "noul", "instructions": "Is a refund asked for?"},
    }
    picture = sdk.Image(next((here / "images").glob("*.png")).read_bytes())
    with serving(f"qwen3-5={here / 'base'}", log=tmp_path / "log") as server:
        assert ask(server.url, [("I want my money back.", question), ([picture], question)]) == 2
