"""Embeddings that came before, by text."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from threading import Lock

from models_clm.prompts import Embedded


class EmbeddingCache:
    """The most recently used embeddings, at most `limit`; safe to use from several threads."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._entries: OrderedDict[str, Embedded] = OrderedDict()
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, texts: Iterable[str]) -> dict[str, Embedded]:
        """What is known of `texts`, which become the most recently used."""
        found: dict[str, Embedded] = {}
        with self._lock:
            for text in texts:
                if (entry := self._entries.get(text)) is not None:
                    self._entries.move_to_end(text)
                    found[text] = entry
        return found

    def put(self, entries: Iterable[tuple[str, Embedded]]) -> None:
        """Keep embeddings; the least recently used beyond the limit go."""
        with self._lock:
            for text, entry in entries:
                self._entries[text] = entry
                self._entries.move_to_end(text)
            while len(self._entries) > self._limit:
                self._entries.popitem(last=False)
