"""Vectors of candidate texts that came before."""

from collections import OrderedDict
from dataclasses import dataclass
from threading import Lock

import numpy as np
from numpy.typing import NDArray

ENTRY_BYTES = 400  # objects around a vector and its text, by sys.getsizeof on CPython 3.11


@dataclass(frozen=True, slots=True)
class Encoded:
    """A text's unit vector, and the tokens it took."""

    vector: NDArray[np.float32]
    num_tokens: int


class VectorCache:
    """Least recently used texts leave when the byte budget is full; safe between threads."""

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.num_bytes = 0
        self._entries: OrderedDict[str, Encoded] = OrderedDict()
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, text: str) -> Encoded | None:
        """The entry, now the most recent one."""
        with self._lock:
            entry = self._entries.get(text)
            if entry is not None:
                self._entries.move_to_end(text)
            return entry

    def put(self, text: str, entry: Encoded) -> None:
        """Keep an entry; one that is over the whole budget is not kept."""
        with self._lock:
            if text in self._entries or _size(text, entry) > self.max_bytes:
                return
            self._entries[text] = entry
            self.num_bytes += _size(text, entry)
            while self.num_bytes > self.max_bytes:
                self.num_bytes -= _size(*self._entries.popitem(last=False))


def _size(text: str, entry: Encoded) -> int:
    return ENTRY_BYTES + 4 * len(text) + entry.vector.nbytes
