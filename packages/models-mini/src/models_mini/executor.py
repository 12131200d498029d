"""Runs the encoder: prompts packed side by side, without padding between them."""

import contextlib
import ctypes
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import onnxruntime as ort  # type: ignore[import-untyped]
from numpy.typing import NDArray

from models_mini.checkpoint import MiniCheckpoint
from models_mini.prompt import MiniPrompt
from models_mini.readout import NOBODY
from system1_core import Executor, Prompt

# Attention is computed over the whole pack and masked, so its cost grows with the square; at 128
# tokens it is still small beside the matrix products.
PACK_TOKENS = 128
DEFAULT_MAX_THREADS = 8  # a text of some dozen tokens gives more threads nothing to do


class MiniExecutor(Executor):
    """Outputs vectors [S, 384] float32 for each prompt: the mean hidden state of each segment."""

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
        _return_freed_memory()

    def execute(self, prompts: Sequence[Prompt]) -> list[NDArray[np.float32]]:
        """Equal prompts run once; a vector depends on its own prompt alone."""
        wanted = [_known(prompt) for prompt in prompts]
        found: dict[MiniPrompt, NDArray[np.float32]] = {}
        order = sorted(set(wanted), key=lambda one: (one.num_tokens, one.token_ids))
        for pack in make_packs(order):
            found.update(zip(pack, self._run(pack), strict=True))
        return [found[prompt] for prompt in wanted]

    def _run(self, pack: Sequence[MiniPrompt]) -> list[NDArray[np.float32]]:
        assert self._session is not None
        vectors = self._session.run(["vectors"], make_inputs(pack))[0]
        ends = np.cumsum([len(prompt.segments) for prompt in pack])
        return np.split(vectors, ends[:-1])

    def warmup(self) -> None:
        """The first run allocates the arena."""
        self._run([MiniPrompt.of_text([101, 102])])

    def close(self) -> None:
        self._session = None


def make_inputs(pack: Sequence[MiniPrompt]) -> dict[str, NDArray[np.generic]]:
    """The graph's inputs: tokens of all prompts in a row, segments numbered through."""
    first = np.cumsum([0, *(len(prompt.segments) for prompt in pack)])
    segments = [segment for prompt in pack for segment in prompt.segments]
    parents = [
        NOBODY if segment.parent == NOBODY else start + segment.parent
        for start, prompt in zip(first, pack, strict=False)
        for segment in prompt.segments
    ]
    lengths = np.array([segment.num_tokens for segment in segments])
    numbers = np.repeat(np.arange(len(segments)), lengths)
    member = numbers == np.arange(len(segments))[:, None]
    return {
        "token_ids": np.concatenate([np.asarray(one.token_ids, np.int64) for one in pack]),
        "kind_ids": _spread([segment.kind for segment in segments], lengths),
        "position_ids": np.concatenate([np.arange(n, dtype=np.int64) for n in lengths]),
        "segment_ids": numbers.astype(np.int64),
        "parent_ids": _spread(parents, lengths),
        "layers": _spread([segment.layer for segment in segments], lengths),
        "pooling": (member / lengths[:, None]).astype(np.float32),
    }


def _spread(values: Sequence[int], lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.repeat(np.array(values, np.int64), lengths)


def _known(prompt: Prompt) -> MiniPrompt:
    assert isinstance(prompt, MiniPrompt)
    return prompt


def make_packs(prompts: Sequence[MiniPrompt]) -> Iterator[list[MiniPrompt]]:
    """Cut a list of prompts into packs of at most `PACK_TOKENS`; a longer prompt is alone."""
    pack: list[MiniPrompt] = []
    room = PACK_TOKENS
    for prompt in prompts:
        if pack and prompt.num_tokens > room:
            yield pack
            pack, room = [], PACK_TOKENS
        pack.append(prompt)
        room -= prompt.num_tokens
    if pack:
        yield pack


def _return_freed_memory() -> None:
    """Give the system what loading freed; glibc would keep 60 MB. Others have no such call."""
    with contextlib.suppress(OSError, TypeError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


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
