"""The tiny checkpoint, both adapters loaded once, and the path of a request without a server."""

import base64
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from models_cuas1.load import load_executor, load_processor
from models_cuas1.reference import ReferenceDialect
from system1_core.answers import Result
from system1_core.family import Load
from system1_core.processor import Prepared
from system1_core.request import Request
from system1_core.wire.dialect import Body, RequestLimits
from system1_core.wire.systemone import SystemOne

FIXTURES = Path(__file__).parent / "fixtures"
BASE = FIXTURES / "base"
ADAPTERS = FIXTURES / "adapter"


def pytest_configure(config):
    torch.set_num_threads(1)


def fixture(name: str) -> Any:
    return json.loads((FIXTURES / name).read_text(encoding="utf-8"))


def data_url(file: str | bytes, mime: str = "image/png") -> str:
    content = file if isinstance(file, bytes) else (FIXTURES / file).read_bytes()
    return f"data:{mime};base64,{base64.b64encode(content).decode()}"


def body_of(case: Mapping[str, Any]) -> dict[str, Any]:
    """The body of a case, its picture filled in."""
    body = dict(case["request"])
    if isinstance(body["state"], dict) and isinstance(body["state"].get("image"), dict):
        image = body["state"]["image"]
        body["state"] = {"image": data_url(image["$file"], image["mime"])}
    return body


TEXT_CASES = fixture("text_cases.json")
IMAGE_CASES = fixture("image_cases.json")
CASES = [*TEXT_CASES, *IMAGE_CASES]


def named(case: Mapping[str, Any]) -> str:
    return case["name"]


def load_of(family: str = "cuas1", **fields: Any) -> Load:
    options = {"base": BASE, "split": None} | fields.pop("options", {})
    return Load(family=family, options=options, **{"folder": ADAPTERS, **fields})


class Served:
    """One loaded family; `answer` is what the engine does, without a scheduler."""

    def __init__(self, load: Load) -> None:
        only = load.family.partition("-")[2] or None
        self.reference = ReferenceDialect(only)
        self.processor, self.executor = load_processor(load), load_executor(load)

    def prepare(self, body: Any) -> Prepared:
        return self.processor.prepare(self.parse(body))

    def parse(self, body: Any) -> Request:
        raw = json.dumps(body).encode()
        return self.reference.parse(Body(json=body, num_bytes=len(raw)), RequestLimits())

    def answer(self, request: Request) -> Result:
        prepared = self.processor.prepare(request)
        outputs = self.executor.execute(prepared.prompts)
        return self.processor.finish(prepared.context, outputs)

    def ask_reference(self, body: Any) -> dict[str, Any]:
        request = self.parse(body)
        return self.reference.render(request, self.answer(request), "cuas1")

    def protocol(self, body: Mapping[str, Any]) -> Request:
        return SystemOne().parse(Body(json=body), RequestLimits())

    def ask(self, body: Mapping[str, Any]) -> dict[str, Any]:
        request = self.protocol(body)
        return SystemOne().render(request, self.answer(request), "cuas1")


@pytest.fixture(autouse=True)
def one_thread(monkeypatch):
    """The executor would take every core, which others test on as well."""
    monkeypatch.setattr("models_qwen3_5.executor.set_cpu_threads", lambda: 1)


@pytest.fixture(scope="session")
def served() -> Served:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("models_qwen3_5.executor.set_cpu_threads", lambda: 1)
        return Served(load_of())


def question(**fields: Any) -> dict[str, Any]:
    return {
        "type": "choice",
        "instructions": "Go.",
        "criteria": {"a": "Click OK", "b": "Wait"},
        **fields,
    }


def body(state: Any = "Screen", **questions: Any) -> dict[str, Any]:
    return {"model": "cua-s1-4b-0.2", "state": state, "questions": questions or {"q": question()}}


def assert_close(found: Any, expected: Any, tolerance: float, path: str = "") -> None:
    """Equal structure in equal order, numbers within `tolerance`."""
    if isinstance(expected, dict):
        assert isinstance(found, dict), path
        assert list(found) == list(expected), path
        for key, value in expected.items():
            assert_close(found[key], value, tolerance, f"{path}.{key}")
    elif isinstance(expected, float):
        assert found == pytest.approx(expected, abs=tolerance), path
    else:
        assert found == expected, path
