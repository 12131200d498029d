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
from models_qwen3_5.readouts import HeadRows, Readouts
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
        self._head_rows = HeadRows(text, self.ops)

    @torch.inference_mode()
    def forward(self, prompts: Sequence[SequencePrompt]) -> list[Readout]:
        """One packed pass over all sequences; a readout for each, in their order."""
        return list(self.read(prompts))

    @torch.inference_mode()
    def read(self, prompts: Sequence[SequencePrompt]) -> Readouts:
        """The same, computed as it is asked for: ask before the next pass, in inference mode."""
        plan = self.planner.plan(prompts)
        rows = [plan.rows(i, prompt.reads.positions) for i, prompt in enumerate(prompts)]
        wanted = sorted({row for each in rows for row in each.values()})
        hidden = self._hidden(plan, prompts, wanted)
        place = {row: index for index, row in enumerate(wanted)}
        lookups = [{at: place[row] for at, row in each.items()} for each in rows]
        return Readouts(hidden, [prompt.reads for prompt in prompts], lookups, self._head_rows)

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
        """Free every graph and what was kept of the head."""
        self._head_rows.close()
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
            # The table begins with the token ids.
            token_ids = given["table"][: shape.tokens].to(self.device, non_blocking=True)
            given["embeds"] = self.embed(plan, prompts, token_ids)
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
        pinned = self.device.type == "cuda"
        return make_table(plan, prompts, wanted, shape, self._history, pinned=pinned)

    def _inputs(self, table: Tensor, shape: Shape, plan: Plan | None = None) -> PassInputs:
        return take_apart(table.to(self.device, non_blocking=True), shape, self._history, plan)

    def _step(self, inputs: PassInputs) -> Step:
        cos, sin = self._rotary.tables(inputs.positions, self.dtype)
        return Step(self.ops, inputs.tree, cos, sin)

    @property
    def _history(self) -> int:
        return self.config.text.linear_conv_kernel_dim - 1


__all__ = [
    "Backbone",
    "ImageSpan",
    "Planner",
    "PreparedImage",
    "Readout",
    "Readouts",
    "Reads",
    "SequencePrompt",
    "make_positions",
]
