"""CUDA graphs by the shape of a batch, within a byte budget; what has none runs eagerly."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import torch
from torch import Tensor

Key = TypeVar("Key", bound=Hashable)
Tensors = Mapping[str, Tensor]
_WARMUP_RUNS = 2


@dataclass(frozen=True, slots=True)
class _Captured:
    graph: torch.cuda.CUDAGraph
    inputs: Tensors
    outputs: Tensors


class GraphCache(Generic[Key]):
    """Calls `run(key, inputs)`, replaying a captured graph where `capture(key, ...)` made one.

    The key fixes every shape and host value; `run` may not wait for the device, and what it
    computes depends on the inputs' values only. Outputs of a replay are overwritten by the next
    call: read them first. One thread owns a cache. Nothing is captured during a call, so nobody
    waits for a capture.
    """

    def __init__(
        self,
        run: Callable[[Key, Tensors], Tensors],
        *,
        device: torch.device,
        budget_bytes: int,
    ) -> None:
        self._run = run
        self._device = device
        self._budget_bytes = budget_bytes
        self._pool = torch.cuda.graph_pool_handle() if device.type == "cuda" else None
        self._captured: dict[Key, _Captured] = {}
        self.used_bytes = 0

    def __contains__(self, key: Key) -> bool:
        return key in self._captured

    def __len__(self) -> int:
        return len(self._captured)

    def __call__(self, key: Key, inputs: Tensors) -> Tensors:
        captured = self._captured.get(key)
        if captured is None:
            return self._run(key, inputs)
        for name, place in captured.inputs.items():
            place.copy_(inputs[name], non_blocking=True)
        captured.graph.replay()
        return captured.outputs

    def capture(self, key: Key, example: Tensors) -> bool:
        """Capture `key` on a copy of `example`; False where the budget is used up, or not CUDA.

        Graphs share one pool of memory, so that capturing the largest key first costs least.
        """
        if key in self._captured:
            return True
        if self._pool is None or self.used_bytes >= self._budget_bytes:
            return False
        inputs = {name: tensor.to(self._device, copy=True) for name, tensor in example.items()}
        side = torch.cuda.Stream(self._device)
        side.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(side):
            for _ in range(_WARMUP_RUNS):
                self._run(key, inputs)
        torch.cuda.current_stream(self._device).wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        # Capturing empties the cache first: what is reserved from here on is the graph's.
        torch.cuda.empty_cache()
        before = torch.cuda.memory_reserved(self._device)
        # Other threads may use the device meanwhile: another family's executor, for instance.
        with torch.cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local"):
            outputs = self._run(key, inputs)
        self._captured[key] = _Captured(graph, inputs, outputs)
        self.used_bytes += max(0, torch.cuda.memory_reserved(self._device) - before)
        return True

    def close(self) -> None:
        """Free every graph."""
        self._captured.clear()


def make_ladder(limit: int, first: int = 16) -> list[int]:
    """Sizes worth a graph: eight a doubling, so that padding up to one adds an eighth at most.

    Below `8 * first` every multiple of `first`; the last rung is `limit`.
    """
    rungs = []
    size = step = first
    while size < limit:
        rungs.append(size)
        if size >= 16 * step:
            step *= 2
        size += step
    return [*rungs, limit]


def rung_of(size: int, ladder: Sequence[int]) -> int | None:
    """The smallest rung that holds `size`, None above the ladder."""
    place = bisect_left(ladder, size)
    return ladder[place] if place < len(ladder) else None
