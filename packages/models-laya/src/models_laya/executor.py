"""Runs packed batches of prompts on one of the loaded checkpoints."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from itertools import accumulate
from time import perf_counter

import torch

from models_laya.graphs import LayaGraphs
from models_laya.model import LayaModel, Observe, Packed
from models_laya.reading import Reading, action_features
from models_laya.tokens import LayaPrompt
from system1_core.executor import Executor

_log = logging.getLogger(__name__)


class LayaExecutor(Executor):
    """Prompts of one checkpoint a batch, laid end to end; every weight is read once a batch."""

    def __init__(
        self,
        models: Mapping[str, LayaModel],
        *,
        is_deterministic: bool = False,
        graphs: Mapping[str, LayaGraphs] | None = None,
    ) -> None:
        self._models = dict(models)
        self.graphs = dict(graphs or {})
        on_cpu = all(model.device.type == "cpu" for model in self._models.values())
        # A CPU is saturated by a few hundred tokens: more only makes others wait.
        self.max_batch_tokens = 4_096 if on_cpu else 32_768
        # Products over other row counts may sum in another order: alone, bits are equal.
        self.max_batch_prompts = 1 if is_deterministic else 64

    @torch.inference_mode()
    def execute(self, prompts: Sequence[LayaPrompt]) -> list[Reading]:
        graphs = self.graphs.get(prompts[0].batch_key)
        if graphs is not None and (shape := graphs.find(prompts)) is not None:
            return graphs.read(prompts, shape)
        return self.run(prompts)

    def run(self, prompts: Sequence[LayaPrompt], observe: Observe | None = None) -> list[Reading]:
        """As `execute`, without graphs; `observe` sees every stage of the network."""
        model = self._models[prompts[0].batch_key]
        rows = model.read(pack(prompts, model.device), observe)
        counts = [len(prompt.markers) + 1 for prompt in prompts]
        starts = list(accumulate(counts, initial=0))
        values = model.option_logits(rows).tolist()
        logits = [
            tuple(values[start + 1 : start + count])
            for start, count in zip(starts, counts, strict=False)
        ]
        features = torch.tensor([action_features(each) for each in logits], device=model.device)
        actions = model.action_logits(rows[starts[:-1]], features).tolist()
        return [Reading(each, tuple(action)) for each, action in zip(logits, actions, strict=True)]

    def warmup(self) -> None:
        """One short and one long batch on every checkpoint, then its graphs."""
        for name in self._models:
            short = LayaPrompt((0,) * 8, batch_key=name, markers=(2, 4), type_id=0)
            long = LayaPrompt((0,) * 256, batch_key=name, markers=(2, 4), type_id=2)
            self.execute([short])
            self.execute([short, long])
        for name, graphs in self.graphs.items():
            started = perf_counter()
            count = graphs.capture()
            _log.info(
                "%s: %d CUDA graphs in %.1f s, %d MiB",
                name, count, perf_counter() - started, graphs.used_bytes >> 20,
            )  # fmt: skip

    def close(self) -> None:
        for graphs in self.graphs.values():
            graphs.close()
        self.graphs.clear()
        self._models.clear()


def pack(prompts: Sequence[LayaPrompt], device: torch.device) -> Packed:
    """Lay prompts end to end; the first row of each is read beside its markers."""
    lengths = [prompt.num_tokens for prompt in prompts]
    bounds = list(accumulate(lengths, initial=0))
    reads = [
        start + position
        for prompt, start in zip(prompts, bounds, strict=False)
        for position in (0, *prompt.markers)
    ]
    cu_reads = list(accumulate((len(prompt.markers) + 1 for prompt in prompts), initial=0))
    counts = torch.tensor(lengths)
    starts = torch.tensor(bounds[:-1]).repeat_interleave(counts)
    types = torch.tensor([prompt.type_id for prompt in prompts]).repeat_interleave(counts)
    token_ids = torch.tensor([token for prompt in prompts for token in prompt.token_ids])
    return Packed(
        token_ids=token_ids.to(device),
        positions=(torch.arange(bounds[-1]) - starts).to(device),
        type_ids=types.to(device),
        cu_seqlens=torch.tensor(bounds, dtype=torch.int32, device=device),
        max_seqlen=max(lengths),
        read_rows=torch.tensor(reads, device=device),
        cu_reads=torch.tensor(cu_reads, dtype=torch.int32),
    )
