"""What one request needs: its distinct texts, their prompts, and where their vectors come out."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from models_mini.cache import Encoded
from models_mini.prompt import MiniPrompt
from models_mini.readout import Readout
from system1_core import Question

Vector = NDArray[np.float32]

# Candidates that read a state stand beside it in one prompt; with more of them attention, whose
# cost grows with the square, would cost more than reading the state again.
BESIDE_TOKENS = 256


@dataclass(slots=True)
class Place:
    """Where a text's vectors come out: prompt and segment of each window, and what they weigh."""

    num_tokens: int
    outputs: list[tuple[int, int]] = field(default_factory=list)
    weights: list[int] = field(default_factory=list)
    known: Encoded | None = None

    def add(self, prompt: int, segment: int, weight: int) -> None:
        self.outputs.append((prompt, segment))
        self.weights.append(weight)

    def vector(self, outputs: Sequence[NDArray[np.float32]]) -> Vector:
        """The unit vector of a text: the mean over its windows, weighted by their tokens."""
        if self.known is not None:
            return self.known.vector
        found = np.stack([outputs[prompt][segment] for prompt, segment in self.outputs])
        total = np.asarray(self.weights, np.float32) @ found
        unit: Vector = total / max(float(np.linalg.norm(total)), 1e-12)
        return unit


@dataclass(frozen=True, slots=True)
class Asked:
    """A question, how it reads the state, the state's text, and candidates in answer order."""

    question: Question
    readout: Readout
    state: str
    candidates: list[str]


@dataclass(slots=True)
class State:
    """A state's windows, and the candidates that read it."""

    windows: list[list[int]]
    place: Place
    is_read_alone: bool = False
    beside: dict[tuple[str, Readout], tuple[list[int], Place]] = field(default_factory=dict)
    joint: dict[str, tuple[list[int], Place, Place]] = field(default_factory=dict)


@dataclass(slots=True)
class Plan:
    """Texts are added first, then `make_prompts` lays them out once."""

    asked: list[Asked]
    states: dict[str, State] = field(default_factory=dict)
    pooled: dict[str, tuple[list[int], Place]] = field(default_factory=dict)
    prompts: list[MiniPrompt] = field(default_factory=list)

    def make_prompts(self) -> None:
        for state in self.states.values():
            if state.is_read_alone or state.beside:
                self._add_state(state)
            for ids, place, own_state in state.joint.values():
                for window in state.windows:
                    readout = Readout.parse("joint")
                    own_state.add(len(self.prompts), 0, len(window))
                    place.add(len(self.prompts), 1, len(window))
                    self.prompts.append(MiniPrompt.of_pair(window, [(ids, readout)]))
        for ids, place in self.pooled.values():
            if place.known is None:
                place.add(len(self.prompts), 0, 1)
                self.prompts.append(MiniPrompt.of_text(ids))

    def _add_state(self, state: State) -> None:
        groups = _groups([(ids, readout) for (_, readout), (ids, _) in state.beside.items()])
        places = [place for _, place in state.beside.values()]
        for window in state.windows:
            state.place.add(len(self.prompts), 0, len(window))
            done = 0
            for group in groups:
                for segment in range(len(group)):
                    places[done + segment].add(len(self.prompts), segment + 1, len(window))
                self.prompts.append(MiniPrompt.of_pair(window, group))
                done += len(group)

    @property
    def num_tokens(self) -> int:
        """Every distinct text once, the same whether the cache knew it or not."""
        counts = [state.place.num_tokens for state in self.states.values()]
        counts += [place.num_tokens for _, place in self.pooled.values()]
        for state in self.states.values():
            counts += [place.num_tokens for _, place in state.beside.values()]
            counts += [place.num_tokens for _, place, _ in state.joint.values()]
        return sum(counts)


def _groups(candidates: list[tuple[list[int], Readout]]) -> list[list[tuple[list[int], Readout]]]:
    """Cut into groups of at most `BESIDE_TOKENS`, at least one; a longer candidate is alone."""
    groups: list[list[tuple[list[int], Readout]]] = [[]]
    room = BESIDE_TOKENS
    for ids, readout in candidates:
        if groups[-1] and len(ids) > room:
            groups.append([])
            room = BESIDE_TOKENS
        groups[-1].append((ids, readout))
        room -= len(ids)
    return groups
