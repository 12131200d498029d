"""The loaded heads by name, each read again when its file changes."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path

import torch

from models_clm.head_file import Head, load_head
from system1_core.errors import CheckpointError

logger = logging.getLogger("system1")


class Heads:
    """Used by one thread at a time.

    Raises CheckpointError for a file that is no head, or, with `hidden_size`, one for embeddings
    of another width.
    """

    def __init__(
        self,
        files: Mapping[str, Path],
        device: torch.device | str = "cpu",
        hidden_size: int | None = None,
    ) -> None:
        self._device = device
        self._hidden_size = hidden_size
        self._slots = {name: self._open(file) for name, file in files.items()}

    def current(self, name: str) -> Head:
        """The head as its file holds it now.

        A file that was changed is read again; one that cannot be read, for instance because it is
        still being written, leaves the head as it was until the file changes once more.
        """
        slot = self._slots[name]
        if slot.has_changed():
            try:
                slot.head = self._load(slot.file)
                logger.info("%s: read again, the file has changed", slot.file)
            except (CheckpointError, OSError) as error:
                logger.warning("the head %r stays as it was: %s", name, error)
        return slot.head

    @property
    def names(self) -> tuple[str, ...]:
        """What `current` knows."""
        return tuple(self._slots)

    def _open(self, file: Path) -> _Slot:
        stamp = _stamp_of(file)  # before the bytes: a write in between must not go unseen
        return _Slot(file, stamp, self._load(file))

    def _load(self, file: Path) -> Head:
        head = load_head(file, self._device)
        width = head.network.hidden_size
        if self._hidden_size not in (None, width):
            raise CheckpointError(
                f"{file}: a head for embeddings of {width} numbers, the encoder gives "
                f"{self._hidden_size}; use the encoder that the head was trained on"
            )
        return head


class _Slot:
    """A head and the modification time of the file it came from."""

    def __init__(self, file: Path, stamp: int | None, head: Head) -> None:
        self.file = file
        self.head = head
        self._stamp = stamp

    def has_changed(self) -> bool:
        """Whether the file was written since the last call."""
        stamp = _stamp_of(self.file)
        if stamp in (None, self._stamp):
            return False
        self._stamp = stamp
        return True


def _stamp_of(file: Path) -> int | None:
    try:
        return file.stat().st_mtime_ns
    except OSError:
        return None
