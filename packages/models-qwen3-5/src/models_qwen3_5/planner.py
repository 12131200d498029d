"""Finds what the sequences of a batch share and cuts them into the segments of a tree."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate

from models_qwen3_5.sequence import SequencePrompt, common_prefix


@dataclass(frozen=True, slots=True)
class Segment:
    """Tokens `start` to `stop` of sequence `owner`, continuing segment `parent` (-1: none)."""

    owner: int
    start: int
    stop: int
    parent: int


@dataclass(frozen=True, slots=True)
class Plan:
    """The segments in order of depth, the first packed row of each (and the end of the last), and
    for each sequence the segments it passes through."""

    segments: tuple[Segment, ...]
    starts: tuple[int, ...]
    paths: tuple[tuple[int, ...], ...]

    @property
    def num_tokens(self) -> int:
        return self.starts[-1]

    def row(self, sequence: int, position: int) -> int:
        """The packed row of one position of one sequence."""
        return self.rows(sequence, (position,))[position]

    def rows(self, sequence: int, positions: Iterable[int]) -> dict[int, int]:
        """The packed row of each of these positions of one sequence."""
        found = {}
        # Most are read at the end.
        path = [(self.segments[index], self.starts[index]) for index in self.paths[sequence][::-1]]
        for position in positions:
            for place, start in path:
                if place.start <= position < place.stop:
                    found[position] = start + position - place.start
                    break
            else:
                raise IndexError(f"position {position} is not in sequence {sequence}")
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Planner:
    """The rules of sharing.

    A prefix becomes a segment of its own if that saves `min_saved` tokens over all who share it:
    each level costs every layer another step. Cuts fall on multiples of `cut_multiple` (64 makes
    a shared pass repeat the arithmetic of an unshared one) and never inside an image.
    """

    min_saved: int = 32
    cut_multiple: int = 1

    def plan(self, prompts: Sequence[SequencePrompt]) -> Plan:
        """The tree of these sequences; each holds at least one token."""
        if len(prompts) == 1:
            count = len(prompts[0].key)
            return Plan((Segment(0, 0, count, -1),), (0, count), ((0,),))
        growing = _Growing(self, prompts)
        growing.grow(growing.sorted_sequences(), start=0, parent=-1)
        return growing.plan()


class _Growing:
    """A tree while it is built: segments in the order they are found, deepest last on each path."""

    def __init__(self, rules: Planner, prompts: Sequence[SequencePrompt]) -> None:
        self.rules = rules
        self.prompts = prompts
        self.keys = [prompt.key for prompt in prompts]
        self.segments: list[tuple[int, int, int, int]] = []
        self.depths: list[int] = []
        self.paths: list[tuple[int, ...]] = [()] * len(prompts)

    def sorted_sequences(self) -> list[int]:
        """Sequences so that what shares most is adjacent; ties keep their order."""
        # Any order will do that has what begins alike side by side, and the shorter one first.
        names = [key.tobytes() for key in self.keys]
        return sorted(range(len(names)), key=names.__getitem__)

    def grow(self, group: list[int], start: int, parent: int) -> None:
        """Cut a sorted group that shares everything before `start`."""
        stack = [(group, start, parent)]
        while stack:
            group, start, parent = stack.pop()
            if len(group) == 1:
                self._finish(group[0], start, parent)
                continue
            shared = common_prefix(self.keys[group[0]], self.keys[group[-1]])
            cut = self._cut(group[0], shared)
            if cut > start and (len(group) - 1) * (cut - start) >= self.rules.min_saved:
                parent = self._add(group[0], start, cut, parent)
                start = cut
                for sequence in group:
                    self.paths[sequence] = (*self.paths[sequence], parent)
            stack.extend((part, start, parent) for part in self._parts(group, shared))

    def _parts(self, group: list[int], shared: int) -> list[list[int]]:
        """The group by its token behind the shared part; sequences that end there stand alone."""
        parts: list[list[int]] = []
        last = None
        for sequence in group:
            key = self.keys[sequence]
            token = int(key[shared]) if shared < len(key) else None
            if token is None or token != last:
                parts.append([])
            parts[-1].append(sequence)
            last = token
        return parts

    def _cut(self, sequence: int, shared: int) -> int:
        cut = shared - shared % self.rules.cut_multiple
        for span in reversed(self.prompts[sequence].images):
            if span.start < cut < span.stop:
                cut = span.start - span.start % self.rules.cut_multiple
        return cut

    def _finish(self, sequence: int, start: int, parent: int) -> None:
        stop = len(self.keys[sequence])
        if start < stop:
            leaf = self._add(sequence, start, stop, parent)
            self.paths[sequence] = (*self.paths[sequence], leaf)

    def _add(self, owner: int, start: int, stop: int, parent: int) -> int:
        self.segments.append((owner, start, stop, parent))
        self.depths.append(0 if parent < 0 else self.depths[parent] + 1)
        return len(self.segments) - 1

    def plan(self) -> Plan:
        """The same tree with its segments renumbered in order of depth."""
        order = sorted(range(len(self.segments)), key=self.depths.__getitem__)
        place = {old: new for new, old in enumerate(order)} | {-1: -1}
        found = (self.segments[old] for old in order)
        segments = tuple(
            Segment(owner, start, stop, place[parent]) for owner, start, stop, parent in found
        )
        lengths = (segment.stop - segment.start for segment in segments)
        return Plan(
            segments=segments,
            starts=tuple(accumulate(lengths, initial=0)),
            paths=tuple(tuple(place[old] for old in path) for path in self.paths),
        )
