"""Timing on a CUDA device, and the facts that go with every figure."""

from __future__ import annotations

import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import torch

CALLS_PER_GRAPH = 20
REPLAYS = 15


def time_graph(run: Callable[[], Any], calls: int = CALLS_PER_GRAPH) -> list[float]:
    """Microseconds of one call, a sample a replay; a graph holds `calls` of them in a row."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            run()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(calls):
            run()
    for _ in range(3):
        graph.replay()
    return [sample / calls for sample in _time_events(graph.replay)]


def time_eager(run: Callable[[], Any]) -> list[float]:
    """Microseconds of one call, the host's part included."""
    for _ in range(3):
        run()
    return _time_events(run)


def _time_events(run: Callable[[], Any]) -> list[float]:
    samples = []
    for _ in range(REPLAYS):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        run()
        end.record()
        end.synchronize()
        samples.append(begin.elapsed_time(end) * 1000)
    return samples


def median(samples: list[float]) -> float:
    return statistics.median(samples)


def copy_bandwidth() -> float:
    """Bytes a second of a large device copy, reads and writes counted."""
    source = torch.randn(1 << 29, device="cuda")
    target = torch.empty_like(source)
    microseconds = median(time_eager(lambda: target.copy_(source)))
    return 2 * source.numel() * 4 / microseconds * 1e6


def matrix_rate() -> float:
    """Floating-point operations a second of a large bfloat16 product of random values."""
    a, b = torch.randn(2, 8192, 8192, device="cuda", dtype=torch.bfloat16)
    return 2 * 8192**3 / median(time_eager(lambda: a @ b)) * 1e6


def facts() -> dict[str, Any]:
    """The command, device and versions behind a result."""
    query = ["nvidia-smi", "--query-gpu=driver_version,clocks.sm,clocks.mem", "--format=csv"]
    smi = subprocess.run(query, capture_output=True, text=True).stdout.strip().splitlines()
    return {
        "command": ["python", *map(os.path.basename, sys.argv)],
        "date": time.strftime("%Y-%m-%d"),
        "device": torch.cuda.get_device_name(),
        "nvidia_smi": smi,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "unit": "microseconds",
    }
