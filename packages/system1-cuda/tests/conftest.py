"""One torch thread, and `gpu` tests only where a CUDA device is."""

import os

import pytest
import torch

if not torch.cuda.is_available():
    # Read by Triton when a kernel is defined: before any test imports one.
    os.environ["TRITON_INTERPRET"] = "1"


def pytest_configure(config):
    torch.set_num_threads(1)


def pytest_collection_modifyitems(items):
    skip = pytest.mark.skip(reason="needs a CUDA device")
    for item in items:
        if "gpu" in item.keywords and not torch.cuda.is_available():
            item.add_marker(skip)


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(0)
