"""CUDA graphs of the text decoder, keyed by padded counts: any tree that fits replays them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from time import monotonic

import torch
from torch import Tensor

from models_qwen3_5.passes import Shape, ladder_of, padded_shape
from system1_torch.graphs import GraphCache, rung_of

_log = logging.getLogger(__name__)
# Beyond this the device is busy for longer than the host takes to launch the pass, and padding
# would cost more than the graph saves: 27B needs 65 ms for 1,024 tokens, its launches 15.
MAX_TOKENS = 2_048
# Segments and read rows come in one rung: a lone prompt, a question's options, many questions.
COUNTS = (1, 8, 64, 256)
# Products of up to 128 rows cost nearly the same; from 256 on time follows the row count.
LADDERS = {
    1: ladder_of((16, 256), (32, 1_024), (64, MAX_TOKENS)),
    8: ladder_of((32, 1_024), (64, MAX_TOKENS)),
    64: ladder_of((64, 1_536), (128, MAX_TOKENS)),
    256: ladder_of((64, 1_536), (128, MAX_TOKENS)),
}
GRAPH_BYTES = 6 << 30
# What warm-up may take; the rest is captured when nobody waits.
WARMUP_S = 45.0

Run = Callable[[Shape, Mapping[str, Tensor]], Mapping[str, Tensor]]


class TextGraphs:
    """Graphs of `run(shape, inputs)`, one thread's.

    Inputs are the pass's `table`, and `embeds` [T, D] where images are in it.
    """

    def __init__(self, run: Run, device: torch.device) -> None:
        self._cache: GraphCache[tuple[Shape, bool]] = GraphCache(
            lambda key, inputs: run(key[0], inputs),
            device=device,
            budget_bytes=_budget_bytes(device),
        )
        self._pending: list[tuple[Shape, bool]] = []

    @property
    def used_bytes(self) -> int:
        """Memory that the graphs hold on the device."""
        return self._cache.used_bytes

    def find(self, tokens: int, segments: int, reads: int, *, has_images: bool) -> Shape | None:
        """The shape that a pass is padded to, if it has a graph; None: it runs eagerly."""
        count = rung_of(max(segments, reads), COUNTS)
        if count is None:
            return None
        rung = rung_of(tokens, LADDERS[count])
        if rung is None:
            return None
        shape = padded_shape(rung, count, count)
        return shape if (shape, has_images) in self._cache else None

    def replay(self, shape: Shape, inputs: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """What `run` gives; overwritten by the next call."""
        return self._cache((shape, "embeds" in inputs), inputs)

    def plan(self, *, has_images: bool) -> list[int]:
        """Queue every shape, the likeliest first; returns the row counts they have."""
        kinds = [False, True] if has_images else [False]
        self._pending = [
            (padded_shape(tokens, count, count), is_image)
            for count in COUNTS
            for is_image in kinds
            for tokens in LADDERS[count]
        ]
        return sorted({tokens for ladder in LADDERS.values() for tokens in ladder})

    def capture_for(
        self, seconds: float, make: Callable[[Shape, bool], Mapping[str, Tensor]]
    ) -> int:
        """Capture for about so long; how many graphs there are."""
        end = monotonic() + seconds
        while monotonic() < end and self.capture_next(make):
            pass
        return len(self._cache)

    def capture_next(self, make: Callable[[Shape, bool], Mapping[str, Tensor]]) -> bool:
        """Capture the next shape in line on what `make` gives; False where none is left.

        What cannot be captured is served eagerly, which the log tells: once for an operation, at
        most a few times for memory, because only shapes smaller than the failed one are left.
        """
        if not self._pending:
            return False
        shape, has_images = self._pending.pop(0)
        try:
            is_captured = self._cache.capture((shape, has_images), make(shape, has_images))
        except torch.OutOfMemoryError:
            _log.warning("no memory for CUDA graphs of %d tokens and more", shape.tokens)
            self._pending = [key for key in self._pending if key[0].tokens < shape.tokens]
            return bool(self._pending)
        except Exception:
            # An operation that cannot be captured: it would fail in every shape.
            _log.warning("no more CUDA graphs, passes run eagerly", exc_info=True)
            is_captured = False
        if not is_captured:
            self._pending.clear()
        return is_captured

    def close(self) -> None:
        """Free every graph."""
        self._pending.clear()
        self._cache.close()


def _budget_bytes(device: torch.device) -> int:
    """What graphs may hold: most of a small device is left to the passes that run eagerly."""
    if device.type != "cuda":
        return 0
    free, _ = torch.cuda.mem_get_info(device)
    return min(GRAPH_BYTES, free // 4)
