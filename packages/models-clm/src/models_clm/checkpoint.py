"""Head files: where they lie in a folder, their pins, and how they are read."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from system1_core.checkpoint import Checkpoint
from system1_core.errors import CheckpointError

PUBLISHED_FILE = "CLM_v0.1-8B.pt"
PUBLISHED_SHA256 = "b2b4a8c9c2d39263eff78a351eb909a342ce9b3bf21a3f07c1d1bf15f1c4eda5"
CONVERTED_FILE = "model.safetensors"

LATEST = "clm-latest"
RAW = "clm-raw"

CHECKPOINTS = (
    Checkpoint(
        name="clm-v0.1-8b",
        repo="Contrastive-LM/CLM-v0.1-8B",
        revision="e939398d4556fcd9400c76fa8c5a513202f42b0a",
        patterns=(PUBLISHED_FILE,),
        sha256={PUBLISHED_FILE: PUBLISHED_SHA256},
        description="two heads for Qwen3-8B embeddings, 18.9M parameters, 76 MB",
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadFiles:
    """The head files of one folder by the names they are served under.

    `default` is the name of the head that `clm-latest` means; `clm-raw` where no head is.
    """

    files: Mapping[str, Path]
    default: str

    @property
    def names(self) -> tuple[str, ...]:
        """Every name a request may use, the default first and `clm-raw` last."""
        return (LATEST, *sorted(self.files), RAW)

    def resolve(self, name: str) -> str:
        """The head that one of `names` means."""
        return self.default if name == LATEST else name


def find_heads(folder: Path, default: str | None = None) -> HeadFiles:
    """The heads of a folder: every `.safetensors` and `.pt` file at its top.

    A head is named by its file in lower case, with dashes. Of one name, safetensors wins over
    `.pt`; `model.safetensors` beside a single `.pt` is that file's conversion. Raises
    CheckpointError where there is no head, two files claim one name, or it is open which is the
    default.
    """
    files = {**_files_by_name(folder, ".pt"), **_files_by_name(folder, ".safetensors")}
    converted = folder / CONVERTED_FILE
    others = [name for name, file in files.items() if file != converted]
    if files.get("model") == converted and len(others) == 1 and files[others[0]].suffix == ".pt":
        files = {others[0]: converted}
    reserved = [name for name in files if name in (LATEST, RAW)]
    if reserved:
        raise CheckpointError(
            f"{files[reserved[0]]}: {reserved[0]} is a name with a meaning of its own; rename the "
            "file and choose it with --option clm.default"
        )
    return HeadFiles(files=files, default=_default_of(folder, files, default))


def head_name(file: str) -> str:
    """The name a head is served under, from its file's name without the ending."""
    return file.lower().replace("_", "-")


def check_pin(file: Path) -> None:
    """Raise CheckpointError where a file with the published name is not the published file."""
    if file.name != PUBLISHED_FILE:
        return
    with file.open("rb") as stream:
        found = hashlib.file_digest(stream, "sha256").hexdigest()
    if found != PUBLISHED_SHA256:
        raise CheckpointError(
            f"{file}: SHA-256 is {found}, expected {PUBLISHED_SHA256} (pinned); run `system1 pull "
            f"clm`, or rename the file if it is a head of your own"
        )


def _files_by_name(folder: Path, suffix: str) -> dict[str, Path]:
    found: dict[str, Path] = {}
    for file in sorted(folder.iterdir()):
        if file.suffix != suffix or file.name.startswith(".") or not file.is_file():
            continue
        name = head_name(file.stem)
        if name in found:
            raise CheckpointError(
                f"{folder}: {found[name].name} and {file.name} would both be {name!r}; rename one"
            )
        found[name] = file
    return found


def _default_of(folder: Path, files: Mapping[str, Path], wanted: str | None) -> str:
    listed = ", ".join(sorted(files)) or "none"
    if wanted is not None:
        name = head_name(wanted)
        if name in files or name == RAW:
            return name
        raise CheckpointError(
            f"{folder}: --option clm.default={wanted}: no such head, found {listed}; name one of "
            f"them, or {RAW}"
        )
    if len(files) == 1:
        return next(iter(files))
    if not files:
        raise CheckpointError(
            f"{folder}: found no head, expected a .safetensors or .pt file; name the folder that "
            f"holds {PUBLISHED_FILE}, or run `system1 pull clm`"
        )
    raise CheckpointError(
        f"{folder}: found several heads, {listed}, expected one; say which is {LATEST} with "
        "--option clm.default=NAME"
    )
