"""CUDA graphs of LAYA: padded batches in one buffer, one replay, one copy back."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from models_laya.model import LayaModel, Packed
from models_laya.reading import Reading, action_features
from models_laya.tokens import LayaPrompt
from system1_torch.graphs import GraphCache, make_ladder, rung_of

# Graphs of one checkpoint may take so much of the device's memory.
GRAPH_BYTES = 2 << 30
SEQUENCES = (1, 4, 16, 64)
# From here on the device is busy longer than the host: a graph would gain nothing
# (benchmarks/h200/README.md).
MAX_TOKENS = 8_192
# The published checkpoints' longest prompt; longer ones, by option only, run eagerly.
MAX_SEQLEN = 512


_POSITIONS = array("i", range(MAX_SEQLEN))
_ZEROS = array("i", bytes(MAX_TOKENS * array("i").itemsize))


class Shape(NamedTuple):
    """What a graph is keyed by: every shape and host value follows from it.

    `reads` are the rows that the answers need, markers and first rows, of all sequences.
    """

    tokens: int
    sequences: int

    @property
    def reads(self) -> int:
        return min(self.tokens // 2, max(256, 16 * self.sequences))

    @property
    def max_seqlen(self) -> int:
        return min(self.tokens, MAX_SEQLEN)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Of token ids, positions, types, sequence bounds, read rows and first rows."""
        return (*[self.tokens] * 3, self.sequences + 1, self.reads, self.sequences)


def token_ladder(sequences: int) -> list[int]:
    """Padded token counts for up to `sequences` prompts; lone ones pad least."""
    if sequences == 1:
        return make_ladder(MAX_SEQLEN)
    ladder = make_ladder(min(sequences * MAX_SEQLEN, MAX_TOKENS), first=64)
    # A prompt of fewer tokens than this is nothing but its question.
    return [rung for rung in ladder if rung >= 8 * sequences]


LADDERS = {sequences: token_ladder(sequences) for sequences in SEQUENCES}


def shape_of(prompts: Sequence[LayaPrompt]) -> Shape | None:
    """The smallest shape that holds a batch; None where no graph is meant to."""
    sequences = rung_of(len(prompts), SEQUENCES)
    lengths = [prompt.num_tokens for prompt in prompts]
    if sequences is None or max(lengths) > MAX_SEQLEN:
        return None
    tokens = rung_of(sum(lengths), LADDERS[sequences])
    if tokens is None:
        return None
    shape = Shape(tokens, sequences)
    reads = sum(len(prompt.markers) for prompt in prompts)
    return shape if reads <= shape.reads else None


def make_table(prompts: Sequence[LayaPrompt], shape: Shape) -> Tensor:
    """All inputs of a batch end to end, int32 on the host, each part padded to its size.

    Sequences beyond the batch are empty, rows beyond it belong to none, and reads beyond it are
    of row 0.
    """
    token_ids, positions, types, markers = (array("i") for _ in range(4))
    bounds = array("i", [0])
    for prompt in prompts:
        start, length = bounds[-1], prompt.num_tokens
        token_ids.extend(prompt.token_ids)
        positions.extend(_POSITIONS[:length])
        types.extend(array("i", [prompt.type_id]) * length)
        markers.extend([start + marker for marker in prompt.markers])
        bounds.append(start + length)
    firsts = bounds[:-1]
    bounds.extend(bounds[-1:] * (shape.sequences - len(prompts)))
    parts = (token_ids, positions, types, bounds, markers, firsts)
    table = array("i")
    for part, size in zip(parts, shape.sizes, strict=True):
        table.extend(part)
        table.extend(_ZEROS[: size - len(part)])
    return torch.frombuffer(table, dtype=torch.int32)


class LayaGraphs:
    """One checkpoint's graphs; one thread uses them, and captures at warm-up only."""

    def __init__(self, model: LayaModel, budget_bytes: int = GRAPH_BYTES) -> None:
        self._model = model
        # The model's own tables may be replaced by longer ones, which a graph would not see.
        self._tables = model.rotary_tables(MAX_SEQLEN)
        self._cache: GraphCache[Shape] = GraphCache(
            self._run, device=model.device, budget_bytes=budget_bytes
        )

    @property
    def used_bytes(self) -> int:
        """Memory that the graphs hold on the device."""
        return self._cache.used_bytes

    @torch.inference_mode()
    def capture(self) -> int:
        """Capture every shape within the budget, the largest first; how many there are."""
        shapes = [Shape(tokens, count) for count in SEQUENCES for tokens in LADDERS[count]]
        captured = 0
        for shape in sorted(shapes, reverse=True):
            captured += self._cache.capture(shape, {"table": _example(shape)})
        return captured

    def find(self, prompts: Sequence[LayaPrompt]) -> Shape | None:
        """The shape of a batch if it has a graph."""
        shape = shape_of(prompts)
        return shape if shape is not None and shape in self._cache else None

    def read(self, prompts: Sequence[LayaPrompt], shape: Shape) -> list[Reading]:
        """What the network says about each prompt; the device is done when it returns."""
        found = self._cache(shape, {"table": make_table(prompts, shape)})["answers"].cpu()
        values = found[: shape.reads].tolist()
        logits = list(_split(values, [len(prompt.markers) for prompt in prompts]))
        first_parts = found[shape.reads :].view(shape.sequences, -1)[: len(prompts)]
        features = torch.tensor([action_features(each) for each in logits])
        actions = self._model.act_head.finish(first_parts, features).tolist()
        return [Reading(each, tuple(action)) for each, action in zip(logits, actions, strict=True)]

    def _run(self, shape: Shape, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Option logits, then the action head's part of each first row, without a wait."""
        table = inputs["table"].to(self._model.device)
        token_ids, positions, type_ids, cu_seqlens, marker_rows, first_rows = table.split(
            shape.sizes
        )
        batch = Packed(
            token_ids=token_ids,
            positions=positions,
            type_ids=type_ids,
            cu_seqlens=cu_seqlens,
            max_seqlen=shape.max_seqlen,
            read_rows=marker_rows,
            cu_reads=cu_seqlens,  # not looked at: all rows go through all layers
        )
        hidden = self._model.read_everything(batch, self._tables)
        logits = self._model.option_logits(hidden.index_select(0, marker_rows))
        first = self._model.act_head.of_rows(hidden.index_select(0, first_rows))
        return {"answers": torch.cat([logits, first.flatten()])}

    def close(self) -> None:
        """Free every graph."""
        self._cache.close()


def _example(shape: Shape) -> Tensor:
    """A batch that fills the shape as far as prompts may be long."""
    length = min(shape.tokens // shape.sequences, MAX_SEQLEN)
    prompt = LayaPrompt((0,) * length, batch_key="", markers=(length - 1,), type_id=0)
    return make_table([prompt] * shape.sequences, shape)


def _split(values: Sequence[float], counts: Sequence[int]) -> Iterator[tuple[float, ...]]:
    start = 0
    for count in counts:
        yield tuple(values[start : start + count])
        start += count
