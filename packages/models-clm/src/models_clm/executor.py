"""Embeds texts, on a server or in the process, and scores questions."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

from models_clm.embedding_server import EmbeddingServer
from models_clm.encoder import Encoder
from models_clm.prompts import Cosines, Embedded, ScorePrompt, TextPrompt
from models_clm.scorer import Scorer
from models_clm.segments import shared_length
from system1_core.executor import Executor
from system1_core.processor import Prompt

# The original sends at most this many texts in a call.
TEXTS_PER_CALL = 32
# Calls beyond this many wait for a connection, and hold up nobody who needs none.
MAX_CONNECTIONS = 256
BATCHES_IN_FLIGHT = 1_024
# 64 MiB of embeddings of 4096 numbers.
SCORED_ROWS = 4_096
_CLOSE_S = 10.0


class ClmExecutor(Executor):
    """What both have in common: a question costs one row for its state and each candidate."""

    def cost(self, batch: Sequence[Prompt], prompt: Prompt) -> int:
        if isinstance(prompt, ScorePrompt):
            return 1 + len(prompt.candidates)
        return prompt.num_tokens


class ServerExecutor(ClmExecutor):
    """Texts go to an embedding server, up to MAX_CONNECTIONS calls at a time.

    A call holds texts of one request only, so that one request's failure is nobody else's. The
    heads run on a thread of their own beside the event loop.
    """

    max_batch_prompts = TEXTS_PER_CALL
    max_batch_tokens = SCORED_ROWS
    max_concurrent_batches = BATCHES_IN_FLIGHT

    def __init__(self, server: EmbeddingServer, scorer: Scorer) -> None:
        self._server = server
        self._scorer = scorer
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="clm-heads")
        self._loop: asyncio.AbstractEventLoop | None = None

    async def execute(self, prompts: Sequence[Prompt]) -> Sequence[Any]:
        loop = self._loop = asyncio.get_running_loop()
        if isinstance(prompts[0], ScorePrompt):
            scored: list[Cosines] = await loop.run_in_executor(
                self._thread, self._scorer.score, cast(list[ScorePrompt], prompts)
            )
            return scored
        return await self._server.embed([prompt.text for prompt in cast(list[TextPrompt], prompts)])

    def warmup(self) -> None:
        self._thread.submit(self._scorer.warmup).result()

    def close(self) -> None:
        """Close heads and connections; call it from another thread than the event loop's."""
        self._thread.shutdown()
        if self._loop is not None and self._loop.is_running():
            closing = asyncio.run_coroutine_threadsafe(self._server.aclose(), self._loop)
            closing.result(_CLOSE_S)


class EncoderExecutor(ClmExecutor):
    """Texts of all requests, laid end to end, through an encoder in the process."""

    def __init__(self, encoder: Encoder, scorer: Scorer, *, is_deterministic: bool = False) -> None:
        self._encoder = encoder
        self._scorer = scorer
        # A CPU is saturated by a few hundred tokens: more only makes others wait.
        self.max_batch_tokens = 4_096 if encoder.device.type == "cpu" else 16_384
        self.max_batch_prompts = 1 if is_deterministic else 256

    def cost(self, batch: Sequence[Prompt], prompt: Prompt) -> int:
        """A text that begins as the one before it, as the states of a request do, adds its rest."""
        cost = super().cost(batch, prompt)
        if batch and isinstance(prompt, TextPrompt):
            cost -= shared_length(batch[-1].token_ids, prompt.token_ids)
        return cost

    def execute(self, prompts: Sequence[Prompt]) -> Sequence[Any]:
        if isinstance(prompts[0], ScorePrompt):
            return self._scorer.score(cast(list[ScorePrompt], prompts))
        asked = cast(list[TextPrompt], prompts)
        vectors = self._encoder.embed([prompt.token_ids for prompt in asked])
        return [
            Embedded(vector, prompt.num_tokens, prompt.is_cut)
            for prompt, vector in zip(asked, vectors, strict=True)
        ]

    def warmup(self) -> None:
        self._encoder.embed([[0] * 8])
        self._encoder.embed([[0] * 8, [0] * 256])
        self._scorer.warmup()

    def close(self) -> None:
        self._encoder.close()
