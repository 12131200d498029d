"""The hub: what a revision holds, and its bytes into the cache that Hugging Face tools share.

huggingface_hub is slow to import, so nothing imports it before the network is needed. Settings are
read when a function runs, because huggingface_hub reads its own once, at import.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from system1_core.errors import CheckpointError
from system1_core.manifest import RemoteFile

if TYPE_CHECKING:
    from system1_core.checkpoint import Checkpoint

LISTING_TIMEOUT_S = 30.0
PAUSE_S = 1.0
# Git's SHA-1 or an LFS SHA-256; anything else must not become a file name in the cache.
DIGEST = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")


def is_offline() -> bool:
    """Whether HF_HUB_OFFLINE forbids the network."""
    return os.environ.get("HF_HUB_OFFLINE", "").upper() in {"1", "ON", "YES", "TRUE"}


def cache_folder() -> Path:
    """The cache folder by the environment's rules: HF_HUB_CACHE, HF_HOME, XDG_CACHE_HOME, home."""
    for variable, below in (
        ("HF_HUB_CACHE", ""),
        ("HUGGINGFACE_HUB_CACHE", ""),
        ("HF_HOME", "hub"),
        ("XDG_CACHE_HOME", "huggingface/hub"),
    ):
        if value := os.environ.get(variable):
            return Path(os.path.expandvars(value)).expanduser() / below
    return Path.home() / ".cache" / "huggingface" / "hub"


@dataclass(frozen=True, slots=True, kw_only=True)
class RevisionCache:
    """Where one revision of one repository lies in the shared cache."""

    folder: Path
    revision: str

    @classmethod
    def of(cls, checkpoint: Checkpoint) -> RevisionCache:
        """The cache of the checkpoint's pinned revision."""
        folder = cache_folder() / f"models--{checkpoint.repo.replace('/', '--')}"
        return cls(folder=folder, revision=checkpoint.revision)

    @property
    def snapshot(self) -> Path:
        """The folder with the repository's files, each a link to a blob."""
        return self.folder / "snapshots" / self.revision

    @property
    def manifest(self) -> Path:
        """Our own record of this revision; other tools ignore the folder."""
        return self.folder / ".system1" / f"{self.revision}.json"

    @property
    def blobs(self) -> Path:
        """The folder of contents, named by digest."""
        return self.folder / "blobs"

    def partial(self, file: RemoteFile) -> Path:
        """What arrived so far of a file. huggingface_hub 2 throws its own partial files away."""
        return self.blobs / f"{file.digest}.system1.incomplete"

    def found(self) -> dict[str, RemoteFile]:
        """The files in the snapshot, with the digest that the name of a link's target states."""
        files = {}
        for local in sorted(self.snapshot.rglob("*")):
            if local.is_file():
                path = local.relative_to(self.snapshot).as_posix()
                name = local.resolve().name
                digest = name if local.is_symlink() and DIGEST.fullmatch(name) else ""
                files[path] = RemoteFile(path=path, size=local.stat().st_size, digest=digest)
        return files

    def remove(self, local: Path) -> None:
        """Take a file and its content out of the cache."""
        content = local.resolve()
        local.unlink(missing_ok=True)
        if content.is_relative_to(self.folder.resolve()):
            content.unlink(missing_ok=True)

    def check_space(self, files: Iterable[RemoteFile], checkpoint: Checkpoint) -> None:
        """Raises CheckpointError when the missing bytes of `files` do not fit on the disk."""
        parts = [(file, self.partial(file)) for file in files]
        needed = sum(
            file.size - (part.stat().st_size if part.exists() else 0) for file, part in parts
        )
        place = next(folder for folder in self.blobs.parents if folder.exists())
        if needed > (free := shutil.disk_usage(place).free):
            raise CheckpointError(
                f"checkpoint {checkpoint.name!r}: {needed:,} bytes are missing and the disk of "
                f"{place} has {free:,} free; make room or point HF_HOME to a larger disk"
            )


def list_files(checkpoint: Checkpoint) -> dict[str, RemoteFile]:
    """Ask the hub what the pinned revision holds. Raises CheckpointError."""
    with _explained(checkpoint, "the list of files"):
        from huggingface_hub import HfApi

        api = HfApi(endpoint=os.environ.get("HF_ENDPOINT"))
        answer = api.model_info(
            checkpoint.repo,
            revision=checkpoint.revision,
            files_metadata=True,
            timeout=LISTING_TIMEOUT_S,
        )
    if answer.sha != checkpoint.revision:
        raise CheckpointError(
            f"checkpoint {checkpoint.name!r}: asked for revision {checkpoint.revision} of "
            f"{checkpoint.repo}, the hub answered with {answer.sha}; check HF_ENDPOINT"
        )
    files = {}
    for entry in answer.siblings or ():
        digest = entry.lfs.sha256 if entry.lfs else entry.blob_id
        if entry.size is None or not DIGEST.fullmatch(digest or ""):
            raise CheckpointError(
                f"checkpoint {checkpoint.name!r}: the hub states no size or no hash for "
                f"{entry.rfilename!r} (found {entry.size!r}, {digest!r}); check HF_ENDPOINT"
            )
        files[entry.rfilename] = RemoteFile(
            path=entry.rfilename, size=entry.size, digest=digest or ""
        )
    return files


def download(
    checkpoint: Checkpoint,
    cache: RevisionCache,
    file: RemoteFile,
    local: Path,
    prove: Callable[[Path], str],
    *,
    progress: bool,
) -> str:
    """Fetch one file to `local` in the snapshot and return its SHA-256.

    Goes on where an earlier attempt stopped. `prove` sees the content before it becomes part of the
    cache; what it refuses is deleted. Processes that want the same file wait for one another.
    """
    blob, partial = cache.blobs / file.digest, cache.partial(file)
    lock = cache.folder.parent / ".locks" / cache.folder.name / f"{file.digest}.lock"
    with _explained(checkpoint, file.path):
        from huggingface_hub.utils import WeakFileLock  # type: ignore[attr-defined]

        for folder in (lock.parent, blob.parent, local.parent):
            folder.mkdir(parents=True, exist_ok=True)
        with WeakFileLock(lock):
            content = blob if blob.exists() else partial
            if content is partial:
                _fill(partial, checkpoint, file, progress)
            try:
                sha256 = prove(content)
            except CheckpointError:
                content.unlink()
                raise
            if content is partial:
                os.replace(partial, blob)
            _link(blob, local)
    return sha256


def _fill(partial: Path, checkpoint: Checkpoint, file: RemoteFile, progress: bool) -> None:
    """Fetch what a partial file lacks, as often as an attempt brings more of it."""
    with _bars(progress), partial.open("ab") as out:
        if out.tell() > file.size:
            out.truncate(0)
        while (before := out.seek(0, os.SEEK_END)) < file.size:
            try:
                _fetch(out, checkpoint, file)
            except Exception:
                if not before < out.seek(0, os.SEEK_END) < file.size:
                    raise
                time.sleep(PAUSE_S)


def _fetch(out: BinaryIO, checkpoint: Checkpoint, file: RemoteFile) -> None:
    from huggingface_hub import hf_hub_url
    from huggingface_hub.file_download import http_get
    from huggingface_hub.utils import build_hf_headers  # type: ignore[attr-defined]

    endpoint = os.environ.get("HF_ENDPOINT")
    http_get(
        hf_hub_url(checkpoint.repo, file.path, revision=checkpoint.revision, endpoint=endpoint),
        out,
        resume_size=out.tell(),
        # Bytes as they are: a compressed answer has no length and no ranges.
        headers={**build_hf_headers(), "Accept-Encoding": "identity"},
        expected_size=file.size,
        displayed_filename=file.path,
    )


def _link(blob: Path, local: Path) -> None:
    local.unlink(missing_ok=True)
    try:
        local.symlink_to(os.path.relpath(blob, local.parent))
    except OSError:
        # No links here (Windows without the right, some network disks): the content moves in.
        os.replace(blob, local)


@contextlib.contextmanager
def _bars(shown: bool) -> Iterator[None]:
    import huggingface_hub.utils

    utils: Any = huggingface_hub.utils
    hide = not shown and not utils.are_progress_bars_disabled()
    if hide:
        utils.disable_progress_bars()
    try:
        yield
    finally:
        if hide:
            utils.enable_progress_bars()


@contextlib.contextmanager
def _explained(checkpoint: Checkpoint, subject: str) -> Iterator[None]:
    """Turn what huggingface_hub, its HTTP library or the disk raises into a CheckpointError."""
    try:
        yield
    except CheckpointError:
        raise
    except Exception as error:
        # The HTTP library differs by version of huggingface_hub, so its errors have no one root.
        problem = _problem(error, checkpoint, subject)
        raise CheckpointError(f"checkpoint {checkpoint.name!r}: {problem}") from error


def _problem(error: Exception, checkpoint: Checkpoint, subject: str) -> str:
    from huggingface_hub import errors

    repo, revision = checkpoint.repo, checkpoint.revision
    pull = f"`system1 pull {checkpoint.name}`"
    status = getattr(getattr(error, "response", None), "status_code", None)
    code = getattr(error, "errno", None)
    if code in (errno.ENOSPC, errno.EDQUOT):
        return f"the disk is full at {subject}; make room and run {pull} again, it goes on there"
    if code in (errno.EACCES, errno.EPERM, errno.EROFS):
        return f"cannot write {subject} to {cache_folder()}: {error}; point HF_HOME to your own"
    if isinstance(error, errors.EntryNotFoundError):
        return f"{repo} has no file {subject} at revision {revision}; update the model's package"
    if isinstance(error, errors.RevisionNotFoundError) or (
        status == 404 and not isinstance(error, errors.RepositoryNotFoundError)
    ):
        return f"{repo} has no revision {revision}; update the model's package"
    if status in (401, 403) or isinstance(error, errors.RepositoryNotFoundError):
        return (
            f"the hub refused {subject} of {repo} ({status}): it is gated, private or gone; accept "
            "its terms on its page and set HF_TOKEN to a token that may read it"
        )
    endpoint = os.environ.get("HF_ENDPOINT") or "the Hugging Face hub"
    if status is not None:
        return f"{endpoint} answered {status} for {subject} of {repo}; run {pull} again later"
    reason = str(error).partition("\n")[0] or type(error).__name__
    return (
        f"cannot fetch {subject} of {repo} from {endpoint}: {reason}; run {pull} on a connected "
        "machine (it goes on where it stopped), serve a local folder with NAME=FOLDER, or set "
        "HF_ENDPOINT to a mirror"
    )
