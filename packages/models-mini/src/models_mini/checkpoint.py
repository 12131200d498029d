"""The model's files: where they are, and that they are what `config.json` says."""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from system1_core.errors import CheckpointError

SHIPPED = Path(__file__).parent / "model"
FORMAT = 2
REMEDY = "reinstall models-mini, or export the folder again with training/export.py"


@dataclass(frozen=True, slots=True, kw_only=True)
class MiniCheckpoint:
    """A folder and its parsed `config.json`."""

    folder: Path
    config: dict[str, Any]

    def read(self, name: str) -> bytes:
        """A file's bytes, checked by SHA-256; raises `CheckpointError`."""
        path, expected = self.folder / name, self.config["sha256"][name]
        content = _read(path)
        found = hashlib.sha256(content).hexdigest()
        if found != expected:
            raise CheckpointError(f"{path}: sha256 {found}, expected {expected}: {REMEDY}")
        return content


def open_checkpoint(folder: Path | None = None) -> MiniCheckpoint:
    """The shipped model, or a folder of the same layout."""
    folder = folder or SHIPPED
    path = folder / "config.json"
    try:
        config = json.loads(_read(path))
        found = config["format"]
    except (ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"{path}: not a mini config ({error!r}): {REMEDY}") from None
    if found != FORMAT:
        raise CheckpointError(f"{path}: format {found!r}, expected {FORMAT}: {REMEDY}")
    return MiniCheckpoint(folder=folder, config=config)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise CheckpointError(f"{path}: {error.strerror}: {REMEDY}") from None
