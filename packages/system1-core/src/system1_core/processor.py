"""From a request to prompts, and from outputs to answers."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any

from system1_core.answers import Answer, Result
from system1_core.request import Request


@dataclass(frozen=True, slots=True)
class Prompt:
    """One unit of work; families subclass it to carry images, markers or read positions.

    Only prompts with equal `batch_key` share a batch.
    """

    token_ids: Sequence[int]
    batch_key: Hashable = field(default=None, kw_only=True)

    @property
    def num_tokens(self) -> int:
        """What this prompt costs on its own, and adds to `usage.input_tokens`."""
        return len(self.token_ids)


@dataclass(frozen=True, slots=True)
class Prepared:
    """Prompts in request order, and a context that only the family's `finish` reads."""

    prompts: Sequence[Prompt]
    context: Any = None


class Processor:
    """The host side of a family: text in, prompts out; outputs in, answers out.

    Both methods may run on worker threads (large requests), several at a time; keep no state that
    this would break. `names` are further names that a request's `model` may use, known only once
    the parts are loaded (heads found in a folder).
    """

    names: Sequence[str] = ()

    def prepare(self, request: Request) -> Prepared:
        """Check everything and build the prompts; raises `InvalidRequest` or `TooLarge`."""
        raise NotImplementedError

    def finish(self, context: Any, outputs: Sequence[Any]) -> Result | list[Answer] | Prepared:
        """Answers in question order, or another `Prepared` when the model needs a further round.

        `outputs` holds one entry for each prompt, in their order.
        """
        raise NotImplementedError

    def close(self) -> None:
        """Let go of what `load_processor` opened."""
