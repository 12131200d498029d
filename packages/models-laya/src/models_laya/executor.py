"""Runs packed batches of prompts on one of the loaded checkpoints."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch

from models_laya.model import LayaModel, Observe, Packed
from models_laya.tokens import LayaPrompt
from system1_core.answers import softmax
from system1_core.executor import Executor


@dataclass(frozen=True, slots=True)
class Reading:
    """What the network says about one prompt: logits by slot, and of the actions."""

    logits: tuple[float, ...]
    act_logits: tuple[float, ...]

    @property
    def act_probability(self) -> float:
        """Probability of the first action, acting."""
        return softmax(self.act_logits)[0]


class LayaExecutor(Executor):
    """Prompts of one checkpoint a batch, laid end to end; every weight is read once a batch."""

    def __init__(self, models: Mapping[str, LayaModel], *, is_deterministic: bool = False) -> None:
        self._models = dict(models)
        on_cpu = all(model.device.type == "cpu" for model in self._models.values())
        # A CPU is saturated by a few hundred tokens: more only makes others wait.
        self.max_batch_tokens = 4_096 if on_cpu else 32_768
        # Products over other row counts may sum in another order: alone, bits are equal.
        self.max_batch_prompts = 1 if is_deterministic else 64

    @torch.inference_mode()
    def execute(self, prompts: Sequence[LayaPrompt]) -> list[Reading]:
        return self.run(prompts)

    def run(self, prompts: Sequence[LayaPrompt], observe: Observe | None = None) -> list[Reading]:
        """As `execute`; `observe` sees every stage of the network."""
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
        """One short and one long batch on every checkpoint."""
        for name in self._models:
            short = LayaPrompt((0,) * 8, batch_key=name, markers=(2, 4), type_id=0)
            long = LayaPrompt((0,) * 256, batch_key=name, markers=(2, 4), type_id=2)
            self.execute([short])
            self.execute([short, long])

    def close(self) -> None:
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


def action_features(logits: Sequence[float]) -> tuple[float, float, float, float]:
    """What the action head knows of the options: top, margin, relative entropy, count."""
    probabilities = softmax(logits)
    count = max(2, len(probabilities))
    top, second = sorted((*probabilities, 0.0), reverse=True)[:2]
    entropy = -math.fsum(p * math.log(max(p, 1e-9)) for p in probabilities)
    return top, top - second, entropy / math.log(count), count / 255
