"""Cosines of questions: embeddings through a head, or as they are."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence

import numpy as np
import torch
from torch import Tensor

from models_clm.cache import key_of
from models_clm.checkpoint import RAW
from models_clm.head import MAX_SCALE
from models_clm.head_file import Head
from models_clm.heads import Heads
from models_clm.prompts import Cosines, ScorePrompt, Vector
from system1_core.errors import DependencyFailed

# The raw embedding space has no learned scale; the original uses the cap.
RAW_SCALE = MAX_SCALE
# 32 MiB a head at 512 numbers each.
KEPT_PROJECTIONS = 16_384


class Scorer:
    """Scores batches of questions of one head; used by one thread at a time.

    The last `kept_projections` candidates of each head are kept: options come again and again,
    states hardly ever do.
    """

    def __init__(
        self,
        heads: Heads,
        device: torch.device | str = "cpu",
        *,
        is_deterministic: bool = False,
        kept_projections: int = KEPT_PROJECTIONS,
    ) -> None:
        self._heads = heads
        self._device = device
        # Products over other row counts may sum in another order: then nothing is shared.
        self._is_deterministic = is_deterministic
        self._limit = 0 if is_deterministic else kept_projections
        self._kept: dict[str, _Projections] = {}

    @torch.inference_mode()
    def score(self, prompts: Sequence[ScorePrompt]) -> list[Cosines]:
        """The cosines of each question; all of one head.

        Raises DependencyFailed for embeddings of another width than the head reads.
        """
        if self._is_deterministic:
            return [cosines for prompt in prompts for cosines in self._score([prompt])]
        return self._score(prompts)

    @torch.inference_mode()
    def warmup(self) -> None:
        """Every head once."""
        for name in self._heads.names:
            network = self._heads.current(name).network
            row = torch.full((1, network.hidden_size), 1.0, device=self._device)
            network.state_head(row)
            network.action_head(row)

    def _score(self, prompts: Sequence[ScorePrompt]) -> list[Cosines]:
        name = prompts[0].head
        states = list({id(prompt.state): prompt.state for prompt in prompts}.values())
        row_of_state = {id(state): row for row, state in enumerate(states)}
        candidates = dict(pair for prompt in prompts for pair in _candidates(prompt))
        row_of_text = {text: row for row, text in enumerate(candidates)}
        if name == RAW:
            z, a, scale = self._stack(states), self._stack(candidates.values()), RAW_SCALE
        else:
            head = self._heads.current(name)
            _check_width(head, states[0])
            z = head.network.state_head(self._stack(states))
            a = self._projected(name, head, candidates)
            scale = head.scale
        rows = [row_of_text[text] for prompt in prompts for text in prompt.texts]
        asked = [row_of_state[id(prompt.state)] for prompt in prompts for _ in prompt.texts]
        # Sums row by row: equal texts get equal cosines wherever they stand.
        values = iter((a[rows] * z[asked]).sum(-1).tolist())
        return [Cosines(tuple(next(values) for _ in prompt.texts), scale) for prompt in prompts]

    def _projected(self, name: str, head: Head, candidates: dict[str, Vector]) -> Tensor:
        kept = self._kept.get(name)
        if kept is None or kept.head is not head:  # the file was read again
            kept = self._kept[name] = _Projections(head, self._limit)
        return kept.rows(candidates, self._stack)

    def _stack(self, vectors: Iterable[Vector]) -> Tensor:
        return torch.from_numpy(np.stack(list(vectors))).to(self._device)


class _Projections:
    """Candidates as one head projects them, the least recently used ones beyond the limit go."""

    def __init__(self, head: Head, limit: int) -> None:
        self.head = head
        self._limit = limit
        self._kept: OrderedDict[str | bytes, Tensor] = OrderedDict()

    def rows(
        self, candidates: dict[str, Vector], stack: Callable[[Iterable[Vector]], Tensor]
    ) -> Tensor:
        """[N, P] in the order of `candidates`."""
        keys = {text: key_of(text) for text in candidates}
        missing = [text for text, key in keys.items() if key not in self._kept]
        if missing:
            fresh = self.head.network.action_head(stack(candidates[text] for text in missing))
            if len(missing) == len(candidates) and not self._limit:
                return fresh  # type: ignore[no-any-return]
            # Clones: a view would keep the whole batch as long as one of its rows is kept.
            new = (keys[text] for text in missing)
            self._kept.update(zip(new, map(torch.clone, fresh), strict=True))
        for key in keys.values():
            self._kept.move_to_end(key)
        found = torch.stack([self._kept[key] for key in keys.values()])
        while len(self._kept) > self._limit:
            self._kept.popitem(last=False)
        return found


def _candidates(prompt: ScorePrompt) -> Iterable[tuple[str, Vector]]:
    return zip(prompt.texts, prompt.candidates, strict=True)


def _check_width(head: Head, vector: Vector) -> None:
    width = head.network.hidden_size
    if vector.shape[0] != width:
        raise DependencyFailed(
            f"the embeddings have {vector.shape[0]} numbers, the head reads {width}: the embedding "
            "server serves another model than the head was trained on"
        )
