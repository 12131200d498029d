"""A hub on loopback: enough of the Hugging Face download API to pull from, faults included."""

from __future__ import annotations

import hashlib
import json
import re
import socket
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

API = re.compile(r"/api/models/(?P<repo>[^/]+/[^/]+)(?:/(?P<kind>[a-z-]+)/(?P<revision>[^/]+))?")
RESOLVE = re.compile(r"/(?P<repo>[^/]+/[^/]+)/resolve/(?P<revision>[^/]+)/(?P<path>.+)")
CONTENT = re.compile(r"/content/(?P<sha256>[0-9a-f]{64})/(?P<path>.+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class HubFile:
    """A file of a revision; `lfs` says whether the hub keeps it as a large file."""

    path: str
    content: bytes
    lfs: bool

    @property
    def sha256(self) -> str:
        """SHA-256 of the content."""
        return hashlib.sha256(self.content).hexdigest()

    @property
    def blob_id(self) -> str:
        """Git's hash of what git stores: the content, or the pointer to a large file."""
        stored = f"pointer to {self.sha256}".encode() if self.lfs else self.content
        return hashlib.sha1(b"blob %d\0" % len(stored) + stored).hexdigest()

    @property
    def etag(self) -> str:
        """What names the content in caches."""
        return self.sha256 if self.lfs else self.blob_id


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenRequest:
    """A request as the hub saw it; `range` and `token` are None when absent."""

    method: str
    path: str
    range: str | None
    token: str | None


@dataclass(slots=True, kw_only=True)
class Fault:
    """What goes wrong with the next `times` requests whose method and path match."""

    method: str
    path: str
    times: int
    status: int = 0
    error_code: str = ""
    cut_after: int = -1


class Hub:
    """The server; a context manager. Set HF_ENDPOINT to its `url`.

    `requests` lists what was asked. With a `token`, contents need it as the bearer token.
    `corrupted` holds paths whose content arrives with the right size and a wrong byte; `aliases`
    leads from a revision that is asked for to the one that answers ("main": the newest).
    """

    def __init__(self) -> None:
        self.revisions: dict[str, dict[str, dict[str, HubFile]]] = {}
        self.requests: list[SeenRequest] = []
        self.corrupted: set[str] = set()
        self.aliases: dict[str, str] = {}
        self.token: str | None = None
        self._faults: list[Fault] = []
        self._lock = threading.Lock()
        # As on the real hub, large contents lie on another origin, to which a redirect leads.
        self._api, self._store = _Server(self), _Server(self)

    def __enter__(self) -> Hub:
        self._api.thread.start()
        self._store.thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for server in (self._api, self._store):
            server.shutdown()
            server.server_close()
            server.thread.join()

    @property
    def url(self) -> str:
        """The endpoint."""
        return self._api.url

    @property
    def store_url(self) -> str:
        """Where large contents are."""
        return self._store.url

    def add(
        self, repo: str, revision: str, files: Mapping[str, bytes], *, lfs_from: int = 1024
    ) -> None:
        """Publish a revision, as the newest one; contents of `lfs_from` bytes on are large."""
        self.revisions.setdefault(repo, {})[revision] = {
            path: HubFile(path=path, content=content, lfs=len(content) >= lfs_from)
            for path, content in files.items()
        }

    def fail(
        self, status: int, *, path: str = "", method: str = "", times: int = 1, code: str = ""
    ) -> None:
        """Answer the next matching requests with `status`; `path` is any part of the URL's path."""
        self._faults.append(
            Fault(method=method, path=path, times=times, status=status, error_code=code)
        )

    def cut(self, path: str, *, after: int, times: int = 1) -> None:
        """Close the connection after that many bytes of the next contents sent for `path`."""
        self._faults.append(Fault(method="GET", path=path, times=times, cut_after=after))

    def seen(self, *, method: str = "", path: str = "") -> list[SeenRequest]:
        """The requests so far whose method and path match."""
        with self._lock:
            return [each for each in self.requests if method in each.method and path in each.path]

    def note(self, request: SeenRequest) -> Fault | None:
        """Write a request down and return the fault it meets, if any, that acts before content."""
        with self._lock:
            self.requests.append(request)
        return self.take_fault(request.method, request.path, cuts=False)

    def take_fault(self, method: str, path: str, *, cuts: bool) -> Fault | None:
        """The first live fault of that sort for such a request, used up once."""
        with self._lock:
            for fault in self._faults:
                matches = fault.method in method and fault.path in path
                if matches and fault.times > 0 and (fault.cut_after >= 0) is cuts:
                    fault.times -= 1
                    return fault
        return None


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, hub: Hub) -> None:
        super().__init__(("127.0.0.1", 0), _Connection)
        self.hub = hub
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        # A short poll: shutting down waits for one.
        serve = {"poll_interval": 0.01}
        self.thread = threading.Thread(target=self.serve_forever, kwargs=serve, daemon=True)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that leaves in the middle is no error of the hub's."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class _Connection(BaseHTTPRequestHandler):
    server: _Server

    def do_GET(self) -> None:
        self._answer()

    def do_HEAD(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        self._answer()

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def _answer(self) -> None:
        path = unquote(urlsplit(self.path).path)
        self._body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        token = (self.headers.get("Authorization") or "").removeprefix("Bearer ") or None
        asked = SeenRequest(
            method=self.command, path=path, range=self.headers.get("Range"), token=token
        )
        if fault := self.server.hub.note(asked):
            self._refuse(fault.status, fault.error_code)
        elif match := API.fullmatch(path):
            self._api(**match.groupdict())
        elif match := RESOLVE.fullmatch(path):
            self._resolve(asked, **match.groupdict())
        elif match := CONTENT.fullmatch(path):
            self._large_content(**match.groupdict())
        else:
            self._refuse(404)

    def _find(self, repo: str, revision: str | None) -> tuple[str, dict[str, HubFile]] | None:
        revisions = self.server.hub.revisions.get(repo)
        if revisions is None:
            self._refuse(404, "RepoNotFound")
            return None
        revision = self.server.hub.aliases.get(revision or "main", revision)
        if revision in (None, "main"):
            revision = next(reversed(revisions))
        if revision not in revisions:
            self._refuse(404, "RevisionNotFound")
            return None
        return revision, revisions[revision]

    def _api(self, repo: str, kind: str | None, revision: str | None) -> None:
        if not (found := self._find(repo, revision)):
            return
        commit, files = found
        query = parse_qs(urlsplit(self.path).query)
        if kind in (None, "revision"):
            siblings = [_sibling(file, blobs="blobs" in query) for file in files.values()]
            self._json({"id": repo, "modelId": repo, "sha": commit, "siblings": siblings})
        elif kind == "tree":
            self._json([_entry(file) for file in files.values()])
        elif kind == "paths-info":
            asked = _asked_paths(self._body)
            self._json([_entry(file) for path, file in files.items() if path in asked])
        else:
            self._refuse(404)

    def _resolve(self, asked: SeenRequest, repo: str, revision: str, path: str) -> None:
        if not (found := self._find(repo, revision)):
            return
        commit, files = found
        if self.server.hub.token not in (None, asked.token):
            self._refuse(403 if asked.token else 401, "GatedRepo")
        elif path not in files:
            self._refuse(404, "EntryNotFound")
        elif files[path].lfs:
            file = files[path]
            self.send_response(302)
            self.send_header(
                "Location", f"{self.server.hub.store_url}/content/{file.sha256}/{path}"
            )
            self.send_header("X-Repo-Commit", commit)
            self.send_header("X-Linked-Etag", f'"{file.etag}"')
            self.send_header("X-Linked-Size", str(len(file.content)))
            self.send_header("Content-Length", "0")
            self.end_headers()
        else:
            self._content(files[path], {"X-Repo-Commit": commit})

    def _large_content(self, sha256: str, path: str) -> None:
        for revisions in self.server.hub.revisions.values():
            for files in revisions.values():
                if path in files and files[path].sha256 == sha256:
                    self._content(files[path], {})
                    return
        self._refuse(404)

    def _content(self, file: HubFile, headers: Mapping[str, str]) -> None:
        content = file.content
        if file.path in self.server.hub.corrupted:
            content = bytes([content[0] ^ 1]) + content[1:]
        asked = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range") or "")
        start = int(asked[1]) if asked else 0
        self.send_response(206 if asked else 200)
        if asked:
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("ETag", f'"{file.etag}"')
        self.send_header("Accept-Ranges", "bytes")
        self.send_header("Content-Length", str(len(content) - start))
        self.end_headers()
        if self.command == "HEAD":
            return
        fault = self.server.hub.take_fault("GET", file.path, cuts=True)
        self.wfile.write(content[start : start + fault.cut_after if fault else None])
        if fault:
            self.wfile.flush()
            self.connection.shutdown(socket.SHUT_RDWR)

    def _json(self, value: Any) -> None:
        body = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _refuse(self, status: int, code: str = "") -> None:
        self.send_response(status)
        if code:
            self.send_header("X-Error-Code", code)
        self.send_header("Content-Length", "0")
        self.end_headers()


def _sibling(file: HubFile, *, blobs: bool) -> dict[str, Any]:
    entry: dict[str, Any] = {"rfilename": file.path}
    if blobs:
        entry |= {"size": len(file.content), "blobId": file.blob_id}
        if file.lfs:
            size = len(file.content)
            entry["lfs"] = {"sha256": file.sha256, "size": size, "pointerSize": 130}
    return entry


def _entry(file: HubFile) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "type": "file",
        "path": file.path,
        "size": len(file.content),
        "oid": file.blob_id,
    }
    if file.lfs:
        entry["lfs"] = {"oid": file.sha256, "size": len(file.content), "pointerSize": 130}
    return entry


def _asked_paths(body: bytes) -> list[str]:
    """The paths of a paths-info request: JSON or a form, by version of huggingface_hub."""
    if body.startswith(b"{"):
        paths = json.loads(body)["paths"]
        return [paths] if isinstance(paths, str) else paths
    return parse_qs(body.decode())["paths"]
