"""One torch thread, the tiny checkpoint, and its loaded backbone."""

import json
from pathlib import Path

import pytest
import torch

from models_qwen3_5.checkpoint import Parts, load_adapter, load_backbone

FIXTURES = Path(__file__).parent / "fixtures"


def pytest_configure(config):
    torch.set_num_threads(1)


def pytest_collection_modifyitems(items):
    skip = pytest.mark.skip(reason="needs a CUDA device")
    for item in items:
        if "gpu" in item.keywords and not torch.cuda.is_available():
            item.add_marker(skip)


@pytest.fixture(scope="session")
def base():
    return FIXTURES / "base"


@pytest.fixture(scope="session")
def images():
    return FIXTURES / "images"


@pytest.fixture(scope="session")
def backbone(base):
    return load_backbone(base)


@pytest.fixture(scope="session")
def text_questions():
    return json.loads((FIXTURES / "text_questions.json").read_text())


@pytest.fixture(scope="session")
def image_questions():
    return json.loads((FIXTURES / "image_questions.json").read_text())


@pytest.fixture(scope="session")
def load_adapted(base):
    def load(modality, dtype=torch.float32):
        adapter = load_adapter(FIXTURES / "adapters" / modality)
        parts = Parts(adapter=adapter, vision=modality == "multimodal")
        return load_backbone(base, parts, dtype=dtype)

    return load
