"""Golden cases, the stub server, and engines over both."""

import json
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import torch
from stub_server import serve_stub

from models_clm.plugin import system1_register_models
from system1_core.config import ModelChoice, ServeConfig
from system1_core.engines import build
from system1_core.metrics import Metrics
from system1_core.plugins import discover

FIXTURES = Path(__file__).parent / "fixtures"
HEADS = FIXTURES / "checkpoint"
ENCODER = FIXTURES / "encoder"


@pytest.fixture(autouse=True, scope="session")
def _one_thread():
    torch.set_num_threads(1)


def golden(name):
    return json.loads((FIXTURES / name).read_text("utf-8"))


CASES = golden("requests.json")


def family():
    return next(iter(system1_register_models()))


def options_for(stub, **changes):
    """`--option` texts for the stub server and the fixture heads."""
    chosen = {"embeddings_url": stub.url, "default": "clm_tiny"} | changes
    return [f"clm.{name}={value}" for name, value in chosen.items()]


@asynccontextmanager
async def running_engine(*options, folder=HEADS):
    """A started engine without its example, so that no text is cached before."""
    config = ServeConfig(models=[ModelChoice(name="clm", folder=folder)], options=options)
    engine = build(config, discover(), Metrics()).first
    await engine.start(None)
    try:
        yield engine
    finally:
        await engine.close()


@pytest.fixture
def stub():
    with serve_stub() as running:
        yield running
