"""Which device a model runs on, and how many CPU threads it may use."""

from __future__ import annotations

import math
import os
from pathlib import Path

import torch

from system1_core.errors import ConfigError

_CPU_TOPOLOGY = Path("/sys/devices/system/cpu")
_CGROUP_QUOTA = Path("/sys/fs/cgroup/cpu.max")


def is_device_available(name: str) -> bool:
    """Whether torch can run on "cpu", "cuda" or "mps" here."""
    if name == "cpu":
        return True
    if name == "cuda":
        return torch.cuda.is_available()
    return name == "mps" and torch.backends.mps.is_available()


def torch_device(name: str) -> torch.device:
    """The device by its name, with the index where there are several ("cuda:1").

    Raises ConfigError if torch cannot run on it here.
    """
    if not is_device_available(name.partition(":")[0]):
        raise ConfigError(
            f"--device {name}: torch {torch.__version__} finds no such device on this machine; "
            "use --device cpu, or install a torch build for it"
        )
    return torch.device(name)


def physical_cores() -> int:
    """Physical cores this process may use: affinity and the container's quota are respected.

    A second thread on one core makes matrix products slower, and so does one beyond the quota.
    """
    cpus = _allowed_cpus()
    cores = len({_siblings(cpu) for cpu in cpus})
    return max(1, min(cores, _quota_cpus()))


def set_cpu_threads(count: int | None = None) -> int:
    """Let torch use `count` threads, the physical cores if None; returns the count."""
    threads = physical_cores() if count is None else count
    torch.set_num_threads(threads)
    return threads


def _allowed_cpus() -> list[int]:
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def _siblings(cpu: int) -> str:
    """The hardware threads that share a core with `cpu`; the cpu itself where unknown."""
    try:
        return (_CPU_TOPOLOGY / f"cpu{cpu}/topology/thread_siblings_list").read_text().strip()
    except OSError:
        return str(cpu)


def _quota_cpus() -> float:
    try:
        quota, period = _CGROUP_QUOTA.read_text().split()
    except (OSError, ValueError):
        return math.inf
    return math.inf if quota == "max" else math.ceil(int(quota) / int(period))
