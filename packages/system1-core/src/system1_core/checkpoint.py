"""Pinned checkpoints: what to fetch, from where, and the proof that it is the right thing."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import TYPE_CHECKING

from system1_core import hub
from system1_core.errors import CheckpointError
from system1_core.manifest import Manifest, RemoteFile, git_sha1_of, sha256_of
from system1_core.request import EMPTY

if TYPE_CHECKING:
    from system1_core.family import ModelFamily

# What a downloaded folder may hold beside the model, and no loader reads.
DOCUMENTS = ("*.md", "LICENSE*", "NOTICE*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """Files of one hub repository at one commit.

    `revision` is a full commit hash, never a branch or a tag. `patterns` says which files to
    fetch: shell wildcards in which `*` stays within one folder; each must match a file.
    `sha256` pins contents by file. Patterns and pins are relative to `subfolder`, that is, to
    the folder that `pull` returns. Raises ValueError for a pin that is not one.
    """

    name: str
    repo: str
    revision: str
    patterns: Sequence[str]
    subfolder: str = ""
    sha256: Mapping[str, str] = field(default_factory=lambda: EMPTY)
    description: str = ""

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[0-9a-f]{40}", self.revision):
            raise ValueError(
                f"checkpoint {self.name!r}: revision {self.revision!r} is not a commit hash of "
                "40 lower-case hex digits"
            )
        for file, digest in self.sha256.items():
            if not re.fullmatch(r"[0-9a-f]{64}", digest):
                raise ValueError(
                    f"checkpoint {self.name!r}: pin of {file!r} is {digest!r}, not a SHA-256 of "
                    "64 lower-case hex digits"
                )

    def in_repo(self, file: str) -> str:
        """The path in the repository of a file of this checkpoint."""
        return f"{self.subfolder}/{file}" if self.subfolder else file

    def pin_of(self, file: RemoteFile) -> str | None:
        """The pinned SHA-256 of a file of the repository."""
        return self.sha256.get(file.path.removeprefix(self.in_repo("")))


def pull(checkpoint: Checkpoint, *, offline: bool = False, progress: bool = True) -> Path:
    """Fetch what is missing, prove every file, and return the checkpoint's folder.

    Once proved, a file is not hashed again until its size or modification time changes, and the
    network is not touched. `progress` shows bars if standard error is a terminal. HF_ENDPOINT,
    HF_HOME, HF_HUB_CACHE, HF_HUB_OFFLINE and HF_TOKEN count as they are when this is called.
    Raises CheckpointError; a file with a wrong hash is taken out of the cache.
    """
    offline = offline or hub.is_offline()
    cache = hub.RevisionCache.of(checkpoint)
    manifest = Manifest.load(cache.manifest)
    if manifest.listing is None and not offline:
        manifest.listing = hub.list_files(checkpoint)
    files, unmatched = _select(checkpoint, manifest.listing or cache.found())
    if unmatched and manifest.listing is not None:
        raise CheckpointError(
            f"checkpoint {checkpoint.name!r}: {checkpoint.repo} has no file {unmatched[0]!r} at "
            f"revision {checkpoint.revision}; update the model's package"
        )
    doubtful = [file for file in files if not _is_proved(checkpoint, cache, manifest, file)]
    missing = [file for file in doubtful if not _local(cache, file).is_file()]
    if offline and (unmatched or missing):
        raise _not_here(checkpoint, cache, missing[0].path if missing else unmatched[0])
    for file in doubtful:
        _check_claim(checkpoint, file)
    cache.check_space(missing, checkpoint)
    try:
        for file in doubtful:
            sha256 = _obtain(checkpoint, cache, file, progress)
            manifest.add(file.path, _local(cache, file), sha256)
    finally:
        if doubtful:
            manifest.save()
    return cache.snapshot / checkpoint.subfolder


def is_pulled(checkpoint: Checkpoint) -> bool:
    """Whether every file is here and was proved; neither hashes nor asks the hub."""
    cache = hub.RevisionCache.of(checkpoint)
    manifest = Manifest.load(cache.manifest)
    files, unmatched = _select(checkpoint, manifest.listing or cache.found())
    return not unmatched and all(_is_proved(checkpoint, cache, manifest, file) for file in files)


def pull_family(
    family: ModelFamily,
    names: Sequence[str] = (),
    *,
    offline: bool = False,
    progress: bool = True,
) -> dict[str, Path]:
    """Pull the checkpoints of a family, all or those named; their folders by name."""
    chosen = [checkpoint_named(family, name) for name in names] or family.checkpoints
    return {each.name: pull(each, offline=offline, progress=progress) for each in chosen}


def checkpoint_named(family: ModelFamily, name: str) -> Checkpoint:
    """The checkpoint of that name. Raises CheckpointError with the names there are."""
    for checkpoint in family.checkpoints:
        if checkpoint.name == name:
            return checkpoint
    known = ", ".join(checkpoint.name for checkpoint in family.checkpoints) or "none"
    raise CheckpointError(f"{family.name} has no checkpoint {name!r}; it has: {known}")


def verify(folder: Path, checkpoint: Checkpoint) -> None:
    """Prove that a local folder holds the pinned files and nothing else that a loader might read.

    Hidden files and documents do not count. Raises CheckpointError.
    """
    if not checkpoint.sha256:
        raise CheckpointError(
            f"{folder} cannot be proved to be {checkpoint.name!r}: no hashes are pinned for it; "
            "serve it by name, or without --require-pinned"
        )
    for file in _files_of(folder):
        if file not in checkpoint.sha256:
            raise CheckpointError(
                f"{folder / file}: no hash of it is pinned for {checkpoint.name!r}, so it proves "
                "nothing; delete it if it does not belong there, serve the checkpoint by name, or "
                "leave out --require-pinned"
            )
    for file, expected in checkpoint.sha256.items():
        path = safe_join(folder, file)
        if not path.is_file():
            raise CheckpointError(f"{path}: missing; {_fetch_again(checkpoint)}")
        if (found := sha256_of(path)) != expected:
            raise CheckpointError(
                f"{path}: SHA-256 is {found}, expected {expected} (pinned); delete it and copy it "
                f"anew: {_fetch_again(checkpoint)}"
            )


def safe_join(folder: Path, relative: str) -> Path:
    """A path that a file of the checkpoint names (an index of shards), kept inside `folder`.

    Refuses what is absolute, climbs, or names a drive on any system. Raises CheckpointError.
    """
    parts = PureWindowsPath(relative).parts
    if PurePosixPath(relative).parts != parts or not parts or ".." in parts or "\0" in relative:
        raise CheckpointError(
            f"{relative!r} is not a path inside {folder}; the file that names it is damaged or "
            "hostile: fetch the checkpoint again from its publisher"
        )
    return folder.joinpath(*parts)


def _select(
    checkpoint: Checkpoint, listing: Mapping[str, RemoteFile]
) -> tuple[list[RemoteFile], list[str]]:
    """The files of the checkpoint, and the patterns and pins that match none."""
    wanted = [checkpoint.in_repo(pattern) for pattern in checkpoint.patterns]
    pinned = [checkpoint.in_repo(file) for file in checkpoint.sha256]
    files = [
        file
        for path, file in sorted(listing.items())
        if path in pinned or any(_matches(path, pattern) for pattern in wanted)
    ]
    unmatched = [
        pattern for pattern in wanted if not any(_matches(path, pattern) for path in listing)
    ]
    return files, unmatched + [file for file in pinned if file not in listing]


def _matches(path: str, pattern: str) -> bool:
    names, wildcards = path.split("/"), pattern.split("/")
    return len(names) == len(wildcards) and all(map(fnmatchcase, names, wildcards))


def _local(cache: hub.RevisionCache, file: RemoteFile) -> Path:
    return safe_join(cache.snapshot, file.path)


def _is_proved(
    checkpoint: Checkpoint, cache: hub.RevisionCache, manifest: Manifest, file: RemoteFile
) -> bool:
    sha256 = manifest.trusted_sha256(file.path, _local(cache, file))
    return sha256 is not None and sha256 == (checkpoint.pin_of(file) or sha256)


def _obtain(
    checkpoint: Checkpoint, cache: hub.RevisionCache, file: RemoteFile, progress: bool
) -> str:
    """Fetch or find a file of the snapshot, and return the SHA-256 that was proved right."""
    local = _local(cache, file)
    if not local.is_file():
        return hub.download(
            checkpoint,
            cache,
            file,
            local,
            lambda content: _prove(checkpoint, file, content),
            progress=progress,
        )
    try:
        return _prove(checkpoint, file, local)
    except CheckpointError:
        cache.remove(local)
        raise


def _prove(checkpoint: Checkpoint, file: RemoteFile, content: Path) -> str:
    found = sha256 = sha256_of(content)
    expected, kind, source = checkpoint.pin_of(file), "SHA-256", "pinned"
    if expected is None:
        expected, source = file.digest, f"stated by the hub for {checkpoint.revision}"
        if len(expected) == 40:
            found, kind = git_sha1_of(content), "git SHA-1"
    if found != expected:
        raise CheckpointError(
            f"{content}: {kind} of {file.path} is {found}, expected {expected or 'unknown'} "
            f"({source}); the file was deleted: {_fetch_again(checkpoint)}"
        )
    return sha256


def _check_claim(checkpoint: Checkpoint, file: RemoteFile) -> None:
    """Refuse what the hub itself says is not the pinned content: nothing to fetch or delete."""
    expected = checkpoint.pin_of(file)
    if expected and len(file.digest) == 64 and file.digest != expected:
        raise CheckpointError(
            f"checkpoint {checkpoint.name!r}: the hub says that the SHA-256 of {file.path} at "
            f"revision {checkpoint.revision} is {file.digest}, expected {expected} (pinned); check "
            "HF_ENDPOINT, update the model's package"
        )


def _not_here(checkpoint: Checkpoint, cache: hub.RevisionCache, file: str) -> CheckpointError:
    return CheckpointError(
        f"checkpoint {checkpoint.name!r}: offline, and {file!r} is not in {cache.snapshot}; run "
        f"`system1 pull {checkpoint.name}` on a connected machine and copy the cache (or set "
        "HF_HOME to it), or serve a local folder with NAME=FOLDER"
    )


def _fetch_again(checkpoint: Checkpoint) -> str:
    return f"run `system1 pull {checkpoint.name}`"


def _files_of(folder: Path) -> Iterator[str]:
    """Files that count, relative to `folder`; a linked folder counts as one (it is not entered)."""
    for place, folders, files in os.walk(folder):
        linked = [name for name in folders if Path(place, name).is_symlink()]
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in [*files, *linked]:
            if not name.startswith(".") and not any(fnmatchcase(name, kind) for kind in DOCUMENTS):
                yield Path(place, name).relative_to(folder).as_posix()
