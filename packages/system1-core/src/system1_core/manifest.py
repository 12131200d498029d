"""A record of what a revision holds and of what was hashed, so that no start hashes twice."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
from dataclasses import asdict, dataclass, field
from pathlib import Path

FORMAT = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteFile:
    """A file of a revision as the hub describes it; `path` is relative to the repository.

    `digest` is a SHA-256 (64 hex) for large files, git's blob SHA-1 (40 hex) for small ones.
    """

    path: str
    size: int
    digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """A file that was hashed: it is trusted as long as size and modification time stay."""

    size: int
    mtime_ns: int
    sha256: str


@dataclass(slots=True, kw_only=True)
class Manifest:
    """What one revision holds (`listing`, None until the hub was asked) and what was verified."""

    path: Path
    listing: dict[str, RemoteFile] | None = None
    verified: dict[str, Verified] = field(default_factory=dict)

    @classmethod
    def load(cls, path: Path) -> Manifest:
        """The manifest at `path`; a missing, damaged or foreign one counts as empty."""
        manifest = cls(path=path)
        with contextlib.suppress(OSError, ValueError, TypeError, KeyError, AttributeError):
            content = json.loads(path.read_text("utf-8"))
            if content["format"] == FORMAT:
                verified = {file: Verified(**entry) for file, entry in content["verified"].items()}
                if content["listing"] is not None:
                    listing = [RemoteFile(**entry) for entry in content["listing"]]
                    manifest.listing = {file.path: file for file in listing}
                manifest.verified = verified
        return manifest

    def save(self) -> None:
        """Write it in one step; a cache that cannot be written to costs a second hashing only."""
        listing = None if self.listing is None else [asdict(file) for file in self.listing.values()]
        verified = {file: asdict(entry) for file, entry in self.verified.items()}
        content = {"format": FORMAT, "listing": listing, "verified": verified}
        with contextlib.suppress(OSError):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            _replace(self.path, json.dumps(content, indent=1))

    def add(self, file: str, local: Path, sha256: str) -> None:
        """Note that `local` was hashed and found right."""
        found = local.stat()
        self.verified[file] = Verified(
            size=found.st_size, mtime_ns=found.st_mtime_ns, sha256=sha256
        )

    def trusted_sha256(self, file: str, local: Path) -> str | None:
        """The SHA-256 of `local` if it was hashed before and has not changed since."""
        entry = self.verified.get(file)
        with contextlib.suppress(OSError):
            found = local.stat()
            if entry and (found.st_size, found.st_mtime_ns) == (entry.size, entry.mtime_ns):
                return entry.sha256
        return None


def sha256_of(path: Path) -> str:
    """SHA-256 of a file's content, in hex; reads in chunks."""
    with path.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def git_sha1_of(path: Path) -> str:
    """The hash under which git stores the file's content, in hex."""
    digest = hashlib.sha1(b"blob %d\0" % path.stat().st_size, usedforsecurity=False)
    with path.open("rb") as content:
        while chunk := content.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


def _replace(path: Path, text: str) -> None:
    handle, draft = tempfile.mkstemp(dir=path.parent, prefix=path.name)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as out:
            out.write(text)
        os.replace(draft, path)
    except BaseException:
        os.unlink(draft)
        raise
