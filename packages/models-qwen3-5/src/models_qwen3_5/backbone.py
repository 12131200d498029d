"""The backbone three families share: whole sequences in, what they read out.

Families import their names from here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from models_qwen3_5.config import ModelConfig
from models_qwen3_5.graphs import TextGraphs
from models_qwen3_5.images import PreparedImage
from models_qwen3_5.ops import Ops
from models_qwen3_5.passes import PassInputs, Shape, exact_shape, make_table, take_apart
from models_qwen3_5.planner import Plan, Planner
from models_qwen3_5.rope import RotaryTables, make_positions
from models_qwen3_5.sequence import ImageSpan, Readout, Reads, SequencePrompt
from models_qwen3_5.text import Step, TextModel
from models_qwen3_5.vision import VisionTower
from models_qwen3_5.vision_graphs import VisionGraphs


class Backbone:
    """A loaded model: text decoder, and the vision tower where it was asked for."""

    def __init__(
        self,
        config: ModelConfig,
        text: TextModel,
        vision: VisionTower | None = None,
        *,
        ops: Ops | None = None,
        planner: Planner | None = None,
    ) -> None:
        self.config = config
        self.text = text
        self.vision = vision
        self.ops = ops or Ops()
        self.vision_graphs = VisionGraphs(vision, self.ops) if vision is not None else None
        self.planner = planner or Planner()
        self.device = text.embed_tokens.device
        self.dtype = text.embed_tokens.dtype
        self.graphs = TextGraphs(self._run, self.device) if self.device.type == "cuda" else None
        self._rotary = RotaryTables(config.text, self.device)

    @torch.inference_mode()
    def forward(self, prompts: Sequence[SequencePrompt]) -> list[Readout]:
        """One packed pass over all sequences; a readout for each, in their order."""
        plan = self.planner.plan(prompts)
        wanted = sorted(
            {plan.row(i, at) for i, prompt in enumerate(prompts) for at in prompt.reads.positions}
        )
        hidden = self._hidden(plan, prompts, wanted)
        place = {row: index for index, row in enumerate(wanted)}
        lookups = [
            {at: place[plan.row(i, at)] for at in prompt.reads.positions}
            for i, prompt in enumerate(prompts)
        ]
        return self._read(hidden, [prompt.reads for prompt in prompts], lookups)

    @torch.inference_mode()
    def capture_graphs(self, seconds: float) -> int:
        """Queue the graphs of the decoder and capture for about so long; how many there are."""
        if self.graphs is None:
            return 0
        rows = self.graphs.plan(has_images=self.vision is not None)
        if self.ops.tune_linear is not None:
            self.ops.tune_linear(list(self.text.projections()), rows)
        return self.graphs.capture_for(seconds, self._example)

    @torch.inference_mode()
    def capture_next(self) -> bool:
        """Capture one more graph; False where none is left to do."""
        if self.graphs is not None and self.graphs.capture_next(self._example):
            return True
        return self.vision_graphs is not None and self.vision_graphs.capture_next()

    def close(self) -> None:
        """Free every graph."""
        for graphs in (self.graphs, self.vision_graphs):
            if graphs is not None:
                graphs.close()

    def image_features(self, images: Sequence[PreparedImage]) -> list[Tensor]:
        """Rows [num_tokens, D] of each image in the model's dtype, each distinct one run once."""
        assert self.vision_graphs, "images reached a backbone loaded without its tower"
        return self.vision_graphs.features(images)

    def embed(self, plan: Plan, prompts: Sequence[SequencePrompt], token_ids: Tensor) -> Tensor:
        """Embeddings [T, D] of the packed stream, image rows in place of their placeholders."""
        rows = F.embedding(token_ids, self.text.embed_tokens)
        spans = [
            (plan.starts[index] + span.start - segment.start, span.image)
            for index, segment in enumerate(plan.segments)
            for span in prompts[segment.owner].images
            if segment.start <= span.start < segment.stop
        ]
        if spans:
            features = self.image_features([image for _, image in spans])
            for (row, image), part in zip(spans, features, strict=True):
                rows[row : row + image.num_tokens] = part
        return rows

    def _hidden(self, plan: Plan, prompts: Sequence[SequencePrompt], wanted: list[int]) -> Tensor:
        """Final-norm rows [R, D] of the wanted packed rows."""
        has_images = any(prompts[segment.owner].images for segment in plan.segments)
        counts = (plan.num_tokens, len(plan.segments), len(wanted))
        shape = self.graphs and self.graphs.find(*counts, has_images=has_images)
        if not shape:
            shape = exact_shape(plan, len(wanted))
            inputs = self._inputs(self._table(plan, prompts, wanted, shape), shape, plan)
            x = self.embed(plan, prompts, inputs.token_ids)
            rows = inputs.rows if len(wanted) < plan.num_tokens else None
            return self.text(x, self._step(inputs), rows)
        assert self.graphs is not None
        given = {"table": self._table(plan, prompts, wanted, shape)}
        if has_images:
            inputs = self._inputs(given["table"], shape)
            given["embeds"] = self.embed(plan, prompts, inputs.token_ids)
        return self.graphs.replay(shape, given)["hidden"][: len(wanted)]

    def _run(self, shape: Shape, given: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """A pass from its table alone, without a wait: what a graph holds."""
        inputs = self._inputs(given["table"], shape)
        x = given.get("embeds")
        if x is None:
            x = F.embedding(inputs.token_ids, self.text.embed_tokens)
        return {"hidden": self.text(x, self._step(inputs), inputs.rows)}

    def _example(self, shape: Shape, has_images: bool) -> dict[str, Tensor]:
        """Inputs that fill a shape: all rows in one segment."""
        prompt = SequencePrompt([0] * shape.tokens, reads=Reads(hidden=(0,)))
        plan = Planner().plan([prompt])
        given = {"table": self._table(plan, [prompt], [shape.tokens - 1], shape)}
        if has_images:
            width = self.text.embed_tokens.shape[1]
            given["embeds"] = torch.zeros(shape.tokens, width, dtype=self.dtype)
        return given

    def _table(
        self, plan: Plan, prompts: Sequence[SequencePrompt], wanted: list[int], shape: Shape
    ) -> Tensor:
        """The pass's table, in memory that the device copies from while the host goes on."""
        table = make_table(plan, prompts, wanted, shape, self._history)
        return table.pin_memory() if self.device.type == "cuda" else table

    def _inputs(self, table: Tensor, shape: Shape, plan: Plan | None = None) -> PassInputs:
        return take_apart(table.to(self.device, non_blocking=True), shape, self._history, plan)

    def _step(self, inputs: PassInputs) -> Step:
        cos, sin = self._rotary.tables(inputs.positions, self.dtype)
        return Step(self.ops, inputs.tree, cos, sin)

    @property
    def _history(self) -> int:
        return self.config.text.linear_conv_kernel_dim - 1

    def _read(
        self, hidden: Tensor, reads: Sequence[Reads], lookups: list[dict[int, int]]
    ) -> list[Readout]:
        """All reads of one kind in one gather each: single ones would cost a launch apiece."""
        both = list(zip(reads, lookups, strict=True))
        rows = [lookup[at] for read, lookup in both for at in read.hidden]
        picked = hidden[self._index(rows)].float().split([len(read.hidden) for read in reads])
        pairs = [(lookup[at], token) for read, lookup in both for at, token in read.logprobs]
        logprobs = self._logprobs(hidden, pairs).split([len(read.logprobs) for read in reads])
        logits = self._logits(hidden, reads, lookups)
        return [
            Readout(hidden=h, logits=x, logprobs=p)
            for h, x, p in zip(picked, logits, logprobs, strict=True)
        ]

    def _logits(
        self, hidden: Tensor, reads: Sequence[Reads], lookups: list[dict[int, int]]
    ) -> list[Tensor]:
        """Logits [n, k] of chosen tokens: rounded to the model's dtype, then fp32."""
        found = [hidden.new_zeros(len(read.logits), 0, dtype=torch.float32) for read in reads]
        groups: dict[tuple[int, ...], list[int]] = {}
        for index, read in enumerate(reads):
            if read.logit_ids and read.logits:
                groups.setdefault(read.logit_ids, []).append(index)
        for token_ids, members in groups.items():
            rows = [lookups[index][at] for index in members for at in reads[index].logits]
            head = self._head[self._index(token_ids)]
            logits = self.ops.linear(hidden[self._index(rows)], head).float()
            parts = logits.split([len(reads[index].logits) for index in members])
            for index, part in zip(members, parts, strict=True):
                found[index] = part
        return found

    def _logprobs(self, hidden: Tensor, pairs: list[tuple[int, int]]) -> Tensor:
        """log softmax over the whole vocabulary at (row, token); each row is normalised once."""
        if not pairs:
            return hidden.new_zeros(0, dtype=torch.float32)
        used = sorted({row for row, _ in pairs})
        place = {row: index for index, row in enumerate(used)}
        totals = self.ops.log_sum_exp(hidden[self._index(used)], self._head)
        rows = hidden[self._index([row for row, _ in pairs])].float()
        targets = self._head[self._index([token for _, token in pairs])].float()
        logits = (rows * targets).sum(-1).to(self.dtype).float()
        return logits - totals[self._index([place[row] for row, _ in pairs])]

    def _index(self, places: Sequence[int]) -> Tensor:
        """Places on the device; pinned, or the copy would wait for the pass before it."""
        index = torch.tensor(places, dtype=torch.int64)
        if self.device.type == "cuda" and len(places):
            index = index.pin_memory()
        return index.to(self.device, non_blocking=True)

    @property
    def _head(self) -> Tensor:
        head = self.text.head
        assert head is not None, "logits were read from a backbone loaded without its head"
        return head


__all__ = [
    "Backbone",
    "ImageSpan",
    "Planner",
    "PreparedImage",
    "Readout",
    "Reads",
    "SequencePrompt",
    "make_positions",
]
