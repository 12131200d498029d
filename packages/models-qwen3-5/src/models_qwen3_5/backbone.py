"""The backbone three families share: whole sequences in, what they read out.

Families import their names from here.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from models_qwen3_5.config import ModelConfig
from models_qwen3_5.images import PreparedImage
from models_qwen3_5.ops import Ops
from models_qwen3_5.planner import Plan, Planner
from models_qwen3_5.rope import RotaryTables, make_positions
from models_qwen3_5.sequence import ImageSpan, Readout, Reads, SequencePrompt
from models_qwen3_5.text import Step, TextModel
from models_qwen3_5.vision import VisionTower
from system1_torch.packed_tree import make_packed_tree

# Bounds the tower's activations; one image may exceed it alone.
_VISION_PATCHES = 16_384


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
        self.planner = planner or Planner()
        self.device = text.embed_tokens.device
        self.dtype = text.embed_tokens.dtype
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

    def image_features(self, images: Sequence[PreparedImage]) -> list[Tensor]:
        """Rows [num_tokens, D] of each image in the model's dtype, each distinct one run once."""
        assert self.vision is not None, "images reached a backbone loaded without its tower"
        distinct = list({image.digest: image for image in images}.values())
        features: dict[bytes, Tensor] = {}
        for group in _patch_groups(distinct):
            rows = self.vision(group).split([image.num_tokens for image in group])
            features |= {image.digest: part for image, part in zip(group, rows, strict=True)}
        return [features[image.digest] for image in images]

    def embed(self, plan: Plan, prompts: Sequence[SequencePrompt]) -> Tensor:
        """Embeddings [T, D] of the packed stream, image rows in place of their placeholders."""
        token_ids: list[int] = []
        for segment in plan.segments:
            token_ids.extend(prompts[segment.owner].token_ids[segment.start : segment.stop])
        rows = F.embedding(self._index(token_ids), self.text.embed_tokens)
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
        segments = plan.segments
        owners = {segment.owner for segment in segments}
        positions = {i: make_positions(prompts[i].num_tokens, prompts[i].images) for i in owners}
        packed = torch.cat(
            [torch.from_numpy(positions[s.owner][:, s.start : s.stop]) for s in segments], dim=1
        )
        cos, sin = self._rotary.tables(packed.to(self.device), self.dtype)
        tree = make_packed_tree(
            [s.stop - s.start for s in segments],
            [s.parent for s in segments],
            history=self.config.text.linear_conv_kernel_dim - 1,
            device=self.device,
        )
        rows = None
        if len(wanted) < plan.num_tokens:
            rows = self._index(wanted)
        return self.text(self.embed(plan, prompts), Step(self.ops, tree, cos, sin), rows)

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
        return torch.tensor(places, dtype=torch.int64, device=self.device)

    @property
    def _head(self) -> Tensor:
        head = self.text.head
        assert head is not None, "logits were read from a backbone loaded without its head"
        return head


def _patch_groups(images: Sequence[PreparedImage]) -> list[list[PreparedImage]]:
    """Images in order, in groups of bounded size."""
    groups: list[list[PreparedImage]] = []
    room = 0
    for image in images:
        patches = image.patches.shape[0]
        if not groups or patches > room:
            groups.append([])
            room = _VISION_PATCHES
        groups[-1].append(image)
        room -= patches
    return groups


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
