"""The client of an OpenAI-style embedding server."""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
from collections.abc import Sequence
from typing import Any

import httpx
import numpy as np

from models_clm.options import ClmOptions
from models_clm.prompts import Embedded, Vector
from system1_core.errors import DependencyFailed

# Servers of this kind close idle connections after 5 s: reuse only what is younger.
_KEEPALIVE_S = 2.0
_CONNECT_S = 10.0
# torch's normalize has the same guard.
_EPS = 1e-12
_SHOWN_BODY = 200


class EmbeddingServer:
    """Embeds texts, one call for each `embed`; lives on one event loop, calls overlap."""

    def __init__(
        self,
        options: ClmOptions,
        *,
        max_connections: int = 100,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._options = options
        self._url = options.url
        self._width: int | None = None
        key = options.read_key()
        self._client = httpx.AsyncClient(
            timeout=httpx.Timeout(
                options.embeddings_timeout_s,
                connect=min(_CONNECT_S, options.embeddings_timeout_s),
            ),
            limits=httpx.Limits(
                max_connections=max_connections,
                max_keepalive_connections=max_connections,
                keepalive_expiry=_KEEPALIVE_S,
            ),
            headers={} if key is None else {"Authorization": f"Bearer {key}"},
            transport=transport,
            trust_env=False,
        )

    async def embed(self, texts: Sequence[str]) -> list[Embedded]:
        """Unit embeddings in the order of `texts`; the call's tokens are counted on the first.

        Raises DependencyFailed when the server is unreachable, does not answer 200, or answers
        anything but one embedding of one width for each text.
        """
        try:
            response = await self._client.post(self._url, json=self._body(texts))
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            reason = str(error) or type(error).__name__
            raise DependencyFailed(f"embedder unreachable at {self._url}: {reason}") from None
        # It is read, and its stream points back at it: the texts that were sent, megabytes maybe,
        # would stay until the collector comes.
        response.stream = httpx.ByteStream(b"")
        if response.status_code != 200:
            shown = response.text[:_SHOWN_BODY]
            raise DependencyFailed(f"embedder error {response.status_code}: {shown}")
        # A response of 32 texts is about 700 kB of base64.
        vectors, num_tokens = await asyncio.to_thread(self._read, response.content, len(texts))
        self._check_width(vectors[0].shape[0])
        return [
            Embedded(vector, num_tokens if index == 0 else 0)
            for index, vector in enumerate(vectors)
        ]

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    def _body(self, texts: Sequence[str]) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": self._options.embeddings_model,
            "input": list(texts),
            "encoding_format": "base64",
        }
        if self._options.truncate_tokens:
            # The question stands at the end of a state text: keep the tail.
            body["truncate_prompt_tokens"] = self._options.truncate_tokens
            body["truncation_side"] = "left"
        return body

    def _read(self, content: bytes, count: int) -> tuple[list[Vector], int]:
        try:
            body = json.loads(content)
            rows: list[Vector | None] = [None] * count
            for entry in body["data"]:
                index = entry["index"]
                if type(index) is not int or not 0 <= index < count or rows[index] is not None:
                    raise ValueError(f"index {index!r} is out of range or comes twice")
                rows[index] = _unit(entry["embedding"])
            vectors = [row for row in rows if row is not None]
            if len(vectors) != count or len({vector.shape for vector in vectors}) != 1:
                raise ValueError(f"{len(vectors)} embeddings of one width for {count} texts")
            return vectors, _num_tokens(body)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise DependencyFailed(
                f"embedder at {self._url}: not an embeddings response: {error}"
            ) from None

    def _check_width(self, width: int) -> None:
        """Embeddings of two models must never meet, and old ones are cached."""
        if self._width is None:
            self._width = width
        if width != self._width:
            raise DependencyFailed(
                f"embedder at {self._url}: embeddings of {width} numbers, before they had "
                f"{self._width}; restart this server after changing the embedding model"
            )


def _unit(value: Any) -> Vector:
    """One row, base64 of little-endian float32 or a list of numbers, at unit length."""
    if isinstance(value, str):
        try:
            packed = np.frombuffer(base64.b64decode(value, validate=True), dtype="<f4")
        except binascii.Error as error:
            raise ValueError(f"an embedding is not base64: {error}") from None
    else:
        packed = np.asarray(value)
    row = packed.astype(np.float64)
    if row.ndim != 1 or row.size == 0:
        raise ValueError(f"an embedding has the shape {list(row.shape)}")
    length = float(np.linalg.norm(row))
    if not np.isfinite(length):
        raise ValueError("an embedding holds values that are not finite")
    unit: Vector = (row / max(length, _EPS)).astype(np.float32)
    return unit


def _num_tokens(body: Any) -> int:
    usage = body.get("usage") or {}
    tokens = usage.get("prompt_tokens") or 0
    if type(tokens) is not int or tokens < 0:
        raise ValueError(f"usage.prompt_tokens is {tokens!r}")
    return tokens
