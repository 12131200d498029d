"""What the executor runs: one text, or a state with candidates that read it."""

from collections.abc import Sequence
from dataclasses import dataclass

from models_mini.readout import LAYERS, NOBODY, Readout
from system1_core import Prompt


@dataclass(frozen=True, slots=True)
class Segment:
    """A text inside a prompt: its tokens see it and, from `layer` on, the segment `parent`."""

    num_tokens: int
    kind: int = 0
    parent: int = NOBODY
    layer: int = LAYERS


@dataclass(frozen=True, slots=True, kw_only=True)
class MiniPrompt(Prompt):
    """Token ids of all segments in a row; the first segment is the state, or a text for itself."""

    segments: tuple[Segment, ...]

    @classmethod
    def of_text(cls, ids: Sequence[int]) -> "MiniPrompt":
        """A text for itself."""
        return cls(tuple(ids), segments=(Segment(len(ids)),))

    @classmethod
    def of_pair(
        cls, state: Sequence[int], candidates: Sequence[tuple[Sequence[int], Readout]]
    ) -> "MiniPrompt":
        """A state with candidates, each reading it in its own way; a joint one is alone."""
        token_ids = [*state]
        first = Segment(len(state))
        segments: list[Segment] = []
        for ids, readout in candidates:
            token_ids.extend(ids)
            parent = readout.parent_of(len(segments) + 1)
            segments.append(Segment(len(ids), readout.kind, parent, readout.layer))
            if readout.is_joint:
                assert len(candidates) == 1
                first = Segment(len(state), 0, readout.parent_of(0), readout.layer)
        return cls(tuple(token_ids), segments=(first, *segments))
