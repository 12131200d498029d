"""Both tiny checkpoints, loaded once, and the path of a request without a server."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from models_laya.load import load_executor, load_processor
from models_laya.reference import ReferenceDialect
from system1_core.answers import Result
from system1_core.family import Load
from system1_core.processor import Prepared
from system1_core.request import Request
from system1_core.wire.dialect import Body, RequestLimits
from system1_core.wire.systemone import SystemOne

FIXTURES = Path(__file__).parent / "fixtures"
FOLDERS = {
    "english": str(FIXTURES / "checkpoint"),
    "multilingual": str(FIXTURES / "checkpoint-multilingual"),
}


def fixture(name: str) -> Any:
    return json.loads((FIXTURES / name).read_text(encoding="utf-8"))


CASES = fixture("cases.json")
SINGLE_CASES = [case for case in CASES if "trace" in case]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    skip = pytest.mark.skip(reason="needs a CUDA device")
    for item in items:
        if "gpu" in item.keywords and not torch.cuda.is_available():
            item.add_marker(skip)


class Served:
    """One loaded family; `answer` is what the engine does, without a scheduler."""

    def __init__(self, **options: Any) -> None:
        load = Load(family="laya", options={**FOLDERS, "threads": 1, **options})
        self.processor, self.executor = load_processor(load), load_executor(load)
        self.reference = ReferenceDialect(
            strict=bool(options.get("strict")),
            tournament_group=options.get("tournament_group"),
        )

    def with_options(self, **options: Any) -> "Served":
        """The same network under other options."""
        other = object.__new__(Served)
        other.processor = load_processor(Load(family="laya", options={**FOLDERS, **options}))
        other.executor = self.executor
        other.reference = ReferenceDialect(
            strict=bool(options.get("strict")),
            tournament_group=options.get("tournament_group"),
        )
        return other

    def answer(self, request: Request) -> Result:
        step = self.processor.prepare(request)
        while isinstance(step, Prepared):
            outputs = self.executor.execute(step.prompts) if step.prompts else []
            step = self.processor.finish(step.context, outputs)
        return step

    def ask_reference(self, body: Any) -> dict[str, Any]:
        request = self.reference.parse(Body(json=body), RequestLimits())
        return self.reference.render(request, self.answer(request), "laya")

    def ask_batch(self, body: Any) -> dict[str, Any]:
        requests = self.reference.parse_batch(Body(json=body), RequestLimits())
        results = [self.answer(request) for request in requests]
        return self.reference.render_batch(requests, results, "laya")

    def ask(self, body: Mapping[str, Any]) -> dict[str, Any]:
        dialect = SystemOne()
        request = dialect.parse(Body(json=body), RequestLimits())
        return dialect.render(request, self.answer(request), "laya")


@pytest.fixture(scope="session")
def served() -> Served:
    torch.set_num_threads(1)
    return Served()


def assert_close(found: Any, expected: Any, tolerance: float = 1e-4, path: str = "") -> None:
    """Equal structure in equal order, numbers within `tolerance`."""
    if isinstance(expected, dict):
        assert isinstance(found, dict), path
        assert list(found) == list(expected), path
        for key, value in expected.items():
            assert_close(found[key], value, tolerance, f"{path}.{key}")
    elif isinstance(expected, list):
        assert len(found) == len(expected), path
        for index, value in enumerate(expected):
            assert_close(found[index], value, tolerance, f"{path}[{index}]")
    elif isinstance(expected, float):
        assert found == pytest.approx(expected, abs=tolerance + 1e-9), path
    else:
        assert type(found) is type(expected), path
        assert found == expected, path
