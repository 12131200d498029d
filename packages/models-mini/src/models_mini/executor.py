"""Runs the encoder: texts packed side by side, without padding between them."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import onnxruntime as ort  # type: ignore[import-untyped]
from numpy.typing import NDArray

from models_mini.checkpoint import MiniCheckpoint
from system1_core import Executor, Prompt

# Attention is computed over the whole pack and masked, so its cost grows with the square; at 128
# tokens it is still small beside the matrix products.
PACK_TOKENS = 128
DEFAULT_MAX_THREADS = 8  # a text of some dozen tokens gives more threads nothing to do


class MiniExecutor(Executor):
    """Outputs one vector [384] float32 for each prompt: the mean of its hidden states."""

    max_batch_prompts = 256
    max_request_tokens = 65_536  # some ten seconds of two cores
    max_batch_tokens = 1024  # about 0.15 s on two cores: others wait no longer for their turn

    def __init__(self, checkpoint: MiniCheckpoint, threads: int = 0) -> None:
        settings = ort.SessionOptions()
        settings.intra_op_num_threads = threads or min(physical_cores(), DEFAULT_MAX_THREADS)
        settings.inter_op_num_threads = 1
        # A spinning worker would take a core from the server's own thread and from others.
        settings.add_session_config_entry("session.intra_op.allow_spinning", "0")
        self.threads = settings.intra_op_num_threads
        self._session: ort.InferenceSession | None = ort.InferenceSession(
            checkpoint.read("encoder.onnx"), settings, providers=["CPUExecutionProvider"]
        )

    def execute(self, prompts: Sequence[Prompt]) -> list[NDArray[np.float32]]:
        """Equal prompts run once; a vector depends on its own tokens alone."""
        keys = [tuple(prompt.token_ids) for prompt in prompts]
        vectors: dict[Sequence[int], NDArray[np.float32]] = {}
        for pack in make_packs(sorted(set(keys), key=lambda ids: (len(ids), ids))):
            vectors.update(zip(pack, self._run(pack), strict=True))
        return [vectors[key] for key in keys]

    def _run(self, pack: Sequence[Sequence[int]]) -> NDArray[np.float32]:
        assert self._session is not None
        lengths = np.array([len(ids) for ids in pack])
        segments = np.repeat(np.arange(len(pack)), lengths)
        member = segments == np.arange(len(pack))[:, None]
        inputs = {
            "token_ids": np.concatenate([np.asarray(ids, np.int64) for ids in pack]),
            "position_ids": np.concatenate([np.arange(n, dtype=np.int64) for n in lengths]),
            "segment_ids": segments.astype(np.int64),
            "pooling": (member / lengths[:, None]).astype(np.float32),
        }
        vectors: NDArray[np.float32] = self._session.run(["vectors"], inputs)[0]
        return vectors

    def warmup(self) -> None:
        """The first run allocates the arena."""
        self._run([(101, 102)])

    def close(self) -> None:
        self._session = None


def make_packs(texts: Sequence[Sequence[int]]) -> Iterator[list[Sequence[int]]]:
    """Cut a list of texts into packs of at most `PACK_TOKENS`; a longer text is alone."""
    pack: list[Sequence[int]] = []
    room = PACK_TOKENS
    for ids in texts:
        if pack and len(ids) > room:
            yield pack
            pack, room = [], PACK_TOKENS
        pack.append(ids)
        room -= len(ids)
    if pack:
        yield pack


def physical_cores() -> int:
    """Cores this process may run on, hyper-threads of one core counted once where Linux tells."""
    if hasattr(os, "sched_getaffinity"):
        return len({_core(cpu) for cpu in os.sched_getaffinity(0)})
    return os.cpu_count() or 1


def _core(cpu: int) -> str:
    path = Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")
    try:
        return path.read_text()
    except OSError:
        return str(cpu)
