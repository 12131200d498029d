"""Embeddings that came before, by text."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from hashlib import sha256
from threading import Lock

from models_clm.prompts import Embedded

_MAX_KEPT_CHARS = 256


def key_of(text: str) -> str | bytes:
    """What stands for a text in a cache: a state may be megabytes, a digest is 32 bytes."""
    return text if len(text) <= _MAX_KEPT_CHARS else sha256(text.encode()).digest()


class EmbeddingCache:
    """The most recently used embeddings, at most `limit`; safe to use from several threads."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._entries: OrderedDict[str | bytes, Embedded] = OrderedDict()
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, texts: Iterable[str]) -> dict[str, Embedded]:
        """What is known of `texts`, which become the most recently used."""
        found: dict[str, Embedded] = {}
        with self._lock:
            for text in texts:
                key = key_of(text)
                if (entry := self._entries.get(key)) is not None:
                    self._entries.move_to_end(key)
                    found[text] = entry
        return found

    def put(self, entries: Iterable[tuple[str, Embedded]]) -> None:
        """Keep embeddings; the least recently used beyond the limit go."""
        with self._lock:
            for text, entry in entries:
                key = key_of(text)
                self._entries[key] = entry
                self._entries.move_to_end(key)
            while len(self._entries) > self._limit:
                self._entries.popitem(last=False)
