"""The backend is found without torch, and serves references where kernels cannot."""

import importlib
import logging
import subprocess
import sys
from importlib.metadata import entry_points

import pytest
import torch

import system1_cuda.build
from system1_cuda.build import KernelBuildError
from system1_cuda.offered import OPS
from system1_cuda.plugin import CudaBackend, system1_register_backends


def test_registering_does_not_import_torch():
    code = (
        "import sys; from system1_cuda.plugin import system1_register_backends as backends; "
        "print([b.name for b in backends()], 'torch' in sys.modules)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "['cuda'] False"


def test_the_plugin_is_an_entry_point():
    found = {point.name: point.value for point in entry_points(group="system1")}
    assert found["cuda"] == "system1_cuda.plugin"


def test_it_goes_before_the_plain_backend_where_there_is_a_device():
    (backend,) = system1_register_backends()
    assert (backend.framework, backend.device) == ("torch", "cuda")
    assert backend.priority > 0
    assert backend.is_available() == torch.cuda.is_available()


def test_older_chips_are_left_to_the_plain_backend(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9 - 2 * device, 0))
    assert not CudaBackend().is_available()
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (8, device))
    assert CudaBackend().is_available()


def test_without_kernels_a_warning_says_why_and_nothing_is_replaced(monkeypatch, caplog):
    def fails():
        raise KernelBuildError("found no nvcc")

    monkeypatch.setattr(system1_cuda.build, "load_kernels", fails)
    with caplog.at_level(logging.WARNING):
        assert CudaBackend().ops == {}
    assert "found no nvcc" in caplog.text


def test_with_kernels_every_operation_is_offered(monkeypatch):
    monkeypatch.setattr(system1_cuda.build, "load_kernels", lambda: None)
    assert CudaBackend().ops == OPS


MODULES = {
    "add_rms_norm": "rms_norm",
    "residual_layer_norm": "layer_norm",
}


# Torch's own, and what only a backend with a choice has.
WITHOUT_REFERENCE = {"linear", "tune_linear"}


@pytest.mark.parametrize("name", sorted(OPS.keys() - WITHOUT_REFERENCE))
def test_every_operation_has_a_reference_of_its_name(name):
    plain = name.removesuffix("_quantised")
    module = importlib.import_module(f"system1_torch.ops.{MODULES.get(plain, plain)}")
    assert callable(getattr(module, name))
