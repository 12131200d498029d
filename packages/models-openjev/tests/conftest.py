"""The tiny checkpoint in both layouts, loaded once, and a request's path without a server."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from models_openjev.plugin import system1_register_models
from models_openjev.reference import ReferenceDialect
from system1_core.answers import Result
from system1_core.backend import Backend
from system1_core.family import Load
from system1_core.request import Question, Request
from system1_core.wire.dialect import Body, RequestLimits
from system1_core.wire.systemone import SystemOne

FIXTURES = Path(__file__).parent / "fixtures"
FAMILIES = {family.name: family for family in system1_register_models()}
CPU = Backend()


def golden(name: str) -> Any:
    return json.loads((FIXTURES / name).read_text("utf-8"))


CASES = golden("requests.json")
NAMES = [case["name"] for case in CASES]


def load_of(folder: Path, base: Path | None = FIXTURES / "base", **fields: Any) -> Load:
    """What the loaders get for a folder under the override for unknown checkpoints."""
    options = {"base": base and str(base), "unknown": "allow", "split": "auto"}
    options |= fields.pop("options", {})
    return Load(family="openjev", folder=folder, options=options, **fields)


class Served:
    """One loaded family; `answer` is what the engine does, without a scheduler."""

    def __init__(self, load: Load) -> None:
        family = FAMILIES["openjev"]
        self.processor, self.executor = family.load_processor(load), family.load_executor(load)
        torch.set_num_threads(1)
        self._scores: dict[str, list[float]] = {}

    def scores(self, case: Any) -> list[float]:
        """The scores of a recorded case, computed once a session."""
        if case["name"] not in self._scores:
            request = ReferenceDialect().parse(Body(json=case["request"]), RequestLimits())
            prompts = self.processor.prepare(request).prompts
            self._scores[case["name"]] = list(self.executor.execute(prompts))
        return self._scores[case["name"]]

    def recorded(self, case: Any) -> dict[str, Any]:
        """The answer to a recorded case in the reference profile."""
        dialect = ReferenceDialect()
        request = dialect.parse(Body(json=case["request"]), RequestLimits())
        context = self.processor.prepare(request).context
        result = self.processor.finish(context, self.scores(case))
        return dialect.render(request, result, "openjev")

    def answer(self, request: Request) -> Result:
        prepared = self.processor.prepare(request)
        outputs = self.executor.execute(prepared.prompts)
        return self.processor.finish(prepared.context, outputs)

    def reference(self, body: Any) -> dict[str, Any]:
        dialect = ReferenceDialect()
        request = dialect.parse(Body(json=body), RequestLimits())
        return dialect.render(request, self.answer(request), "openjev")

    def protocol(self, body: Any) -> dict[str, Any]:
        dialect = SystemOne()
        request = dialect.parse(Body(json=body), RequestLimits())
        return dialect.render(request, self.answer(request), "openjev")


@pytest.fixture(scope="session")
def package() -> Served:
    """Base and package, merged at load."""
    return Served(load_of(FIXTURES / "checkpoint"))


@pytest.fixture(scope="session")
def merged() -> Served:
    """The merged export."""
    return Served(load_of(FIXTURES / "merged", base=None))


def question(type: str = "noul", **fields: Any) -> Question:
    return Question(id="q", type=type, **({"instructions": "Is it?"} | fields))


def assert_close(found: Any, expected: Any, tolerance: float = 1e-4, path: str = "") -> None:
    """Equal structure in equal order, numbers within `tolerance`."""
    if isinstance(expected, dict):
        assert list(found) == list(expected), path
        for key, value in expected.items():
            assert_close(found[key], value, tolerance, f"{path}.{key}")
    elif isinstance(expected, list):
        assert len(found) == len(expected), path
        for index, value in enumerate(expected):
            assert_close(found[index], value, tolerance, f"{path}[{index}]")
    elif isinstance(expected, float):
        assert found == pytest.approx(expected, abs=tolerance), path
    else:
        assert type(found) is type(expected), path
        assert found == expected, path
