"""Prompts to outputs: where a real model runs its network."""

from collections.abc import Sequence

from system1_core import Executor, Prompt


class CoinExecutor(Executor):
    """Always the first option."""

    def execute(self, prompts: Sequence[Prompt]) -> list[int]:
        return [0 for _ in prompts]
