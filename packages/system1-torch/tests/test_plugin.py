"""The plain backends are found without importing torch."""

import subprocess
import sys
from importlib.metadata import entry_points

import pytest
import torch

from system1_core.errors import ConfigError
from system1_torch import device
from system1_torch.device import physical_cores, set_cpu_threads, torch_device
from system1_torch.dtype import DTYPES, torch_dtype
from system1_torch.plugin import system1_register_backends


def test_listing_the_backends_does_not_import_torch():
    code = (
        "import sys; from system1_torch.plugin import system1_register_backends as backends; "
        "print([b.name for b in backends()], 'torch' in sys.modules)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "['torch-cpu', 'torch-cuda', 'torch-mps'] False"


def test_the_plugin_is_an_entry_point():
    found = {point.name: point.value for point in entry_points(group="system1")}
    assert found["torch"] == "system1_torch.plugin"


def test_cpu_serves_float32_and_cuda_bfloat16_by_default():
    backends = {backend.device: backend for backend in system1_register_backends()}
    assert backends["cpu"].is_available()
    assert backends["cpu"].default_dtype == "float32"
    assert backends["cuda"].default_dtype == "bfloat16"
    assert backends["cuda"].is_available() == torch.cuda.is_available()
    for backend in backends.values():
        assert backend.framework == "torch"
        assert backend.priority == 0
        assert backend.default_dtype in backend.dtypes
        assert set(backend.dtypes) <= set(DTYPES)
        assert backend.ops == {}


def test_an_unknown_dtype_lists_the_known_ones():
    assert torch_dtype("bfloat16") is torch.bfloat16
    with pytest.raises(ConfigError, match="float32, bfloat16, float16"):
        torch_dtype("int4")


def test_an_absent_device_names_the_remedy():
    assert torch_device("cpu") == torch.device("cpu")
    with pytest.raises(ConfigError, match="use --device cpu"):
        torch_device("toaster")


@pytest.mark.parametrize(
    ("allowed", "quota", "cores"),
    [([0, 1, 2, 3], "max 100000", 2), ([0, 2], "max 100000", 1), ([0, 1], "150000 100000", 2)],
    ids=["two-threads-a-core", "siblings-only", "quota"],
)
def test_cores_are_counted_within_affinity_and_quota(monkeypatch, tmp_path, allowed, quota, cores):
    for cpu in range(4):
        folder = tmp_path / f"cpu{cpu}" / "topology"
        folder.mkdir(parents=True)
        (folder / "thread_siblings_list").write_text(f"{cpu % 2},{cpu % 2 + 2}\n")
    (tmp_path / "cpu.max").write_text(quota)
    monkeypatch.setattr(device, "_CPU_TOPOLOGY", tmp_path)
    monkeypatch.setattr(device, "_CGROUP_QUOTA", tmp_path / "cpu.max")
    monkeypatch.setattr(device, "_allowed_cpus", lambda: allowed)
    assert physical_cores() == cores


def test_a_quota_below_the_cores_limits_them(monkeypatch, tmp_path):
    (tmp_path / "cpu.max").write_text("100000 100000")
    monkeypatch.setattr(device, "_CGROUP_QUOTA", tmp_path / "cpu.max")
    monkeypatch.setattr(device, "_CPU_TOPOLOGY", tmp_path)
    monkeypatch.setattr(device, "_allowed_cpus", lambda: [0, 1, 2, 3])
    assert physical_cores() == 1


def test_threads_default_to_the_cores_this_process_may_use():
    before = torch.get_num_threads()
    try:
        assert set_cpu_threads() == physical_cores() == torch.get_num_threads()
        assert set_cpu_threads(1) == torch.get_num_threads() == 1
    finally:
        torch.set_num_threads(before)
