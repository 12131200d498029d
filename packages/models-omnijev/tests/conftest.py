"""The tiny model, loaded once, and every recorded request run once."""

import base64
import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest
import torch

from models_omnijev.load import load_executor, load_processor
from models_omnijev.reference import ReferenceDialect
from system1_core.family import Load
from system1_core.wire.dialect import Body, RequestLimits
from system1_core.wire.systemone import SystemOne

FIXTURES = Path(__file__).parent / "fixtures"
MODEL = FIXTURES / "model"
CASES = {
    file.stem: json.loads(file.read_text(encoding="utf-8"))
    for file in sorted((FIXTURES / "requests").glob("*.json"))
}
NAMES = list(CASES)


def pytest_configure(config):
    torch.set_num_threads(1)


@pytest.fixture(scope="session", autouse=True)
def one_thread():
    """Executors would take every core, which others test on as well."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("models_qwen3_5.executor.set_cpu_threads", lambda: 1)
        yield


def image_bytes(name: str) -> bytes:
    return (FIXTURES / "images" / name).read_bytes()


def data_url(content: bytes) -> str:
    kind = "png" if content.startswith(b"\x89") else "jpeg"
    return f"data:image/{kind};base64,{base64.b64encode(content).decode()}"


def body_of(case: dict[str, Any]) -> dict[str, Any]:
    """A recorded request as the original's server gets it."""
    state = dict(case["state"])
    state["images"] = [data_url(image_bytes(name)) for name in state["images"]]
    return {"state": state, "questions": case["questions"]}


def ask(questions: Any, image: str = "pat_64x48.png", **state: Any) -> dict[str, Any]:
    """A small request in the original's grammar."""
    return {"state": {"images": [data_url(image_bytes(image))], **state}, "questions": questions}


def official(questions: Any, state: str = "<pic>", image: str = "pat_64x48.png") -> dict[str, Any]:
    """A small request in the protocol's grammar."""
    asset = {"type": "image", "data_base64": base64.b64encode(image_bytes(image)).decode()}
    return {"state": state, "questions": questions, "assets": {"<pic>": asset}}


def make_load(folder: Path = MODEL, **fields: Any) -> Load:
    return Load(family="omnijev", folder=folder, options={"base": None}, **fields)


class Served:
    """Both halves of the family; `answer` is what the engine does, without a scheduler."""

    def __init__(self, load: Load) -> None:
        self.processor = load_processor(load)
        self.executor = load_executor(load)
        self.reference = ReferenceDialect()

    def parse(self, body: Any) -> Any:
        return self.reference.parse(Body(json=body), RequestLimits())

    def answer(self, request: Any, max_batch: int = 256) -> Any:
        prepared = self.processor.prepare(request)
        outputs = []
        for start in range(0, len(prepared.prompts), max_batch):
            outputs += self.executor.execute(prepared.prompts[start : start + max_batch])
        return self.processor.finish(prepared.context, outputs)

    def ask(self, body: Any, **settings: Any) -> dict[str, Any]:
        """The original's response."""
        request = self.parse(body)
        return self.reference.render(request, self.answer(request, **settings), "omnijev")

    def ask_protocol(self, body: Any) -> dict[str, Any]:
        request = SystemOne().parse(Body(json=body), RequestLimits())
        return SystemOne().render(request, self.answer(request), "omnijev")


@pytest.fixture(scope="session")
def served() -> Served:
    return Served(make_load())


@dataclass
class Run:
    """One recorded request, and what this implementation makes of it at each stage."""

    case: dict[str, Any]
    served: Served

    @cached_property
    def request(self):
        return self.served.parse(body_of(self.case))

    @cached_property
    def prepared(self):
        return self.served.processor.prepare(self.request)

    @cached_property
    def context(self):
        return self.prepared.context

    @cached_property
    def readouts(self):
        return self.served.executor.backbone.read(self.prepared.prompts)

    @cached_property
    def outputs(self):
        return self.served.executor.read_out(self.prepared.prompts, self.readouts)

    @cached_property
    def response(self):
        result = self.served.processor.finish(self.context, self.outputs)
        return self.served.reference.render(self.request, result, "omnijev")

    def questions(self):
        """Recorded detail, the question as asked, and its rows' places, for each question."""
        details = self.case["detail"].values()
        return zip(details, self.context.asked, self.context.rows, strict=True)


@pytest.fixture(scope="session")
def runs(served):
    """Every recorded request; stages run when they are first asked for."""
    return {name: Run(case, served) for name, case in CASES.items()}


@pytest.fixture(params=NAMES)
def run(request, runs):
    return runs[request.param]


def assert_close(found: Any, expected: Any, tolerance: float = 2e-4, path: str = "") -> None:
    """Equal structure in equal order, floats within `tolerance`."""
    if isinstance(expected, dict):
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
