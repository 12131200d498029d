"""A real server on loopback, in a thread of the test process."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from typing import Any

from system1_core.auth import Keys
from system1_core.config import ModelChoice, ServeConfig
from system1_core.engines import build
from system1_core.metrics import Metrics
from system1_core.plugins import Plugins, discover
from system1_core.run import DrainingServer
from system1_core.server import Service

START_LIMIT_S = 120


@dataclass(frozen=True, slots=True)
class Reply:
    """A response: status, headers by lower-case name, raw body."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """The body as JSON."""
        return json.loads(self.body)


class TestServer:
    """Talks to a server that listens on loopback."""

    __test__ = False

    def __init__(self, port: int) -> None:
        self.port = port
        self.url = f"http://127.0.0.1:{port}"

    def send(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Reply:
        """One request on a connection of its own."""
        connection = HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request(method, path, body, dict(headers or {}))
            response = connection.getresponse()
            found = {name.lower(): value for name, value in response.getheaders()}
            return Reply(response.status, found, response.read())
        finally:
            connection.close()

    def get(self, path: str, headers: Mapping[str, str] | None = None) -> Reply:
        """GET `path`."""
        return self.send("GET", path, headers=headers)

    def post(self, path: str, body: Any, headers: Mapping[str, str] | None = None) -> Reply:
        """POST bytes as they are, anything else as JSON."""
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        return self.send("POST", path, raw, headers)

    def ask(self, body: Mapping[str, Any], headers: Mapping[str, str] | None = None) -> Any:
        """The answers to one request; fails unless the status is 200."""
        reply = self.post("/v1/systemone", body, headers)
        assert reply.status == 200, f"{reply.status}: {reply.body.decode(errors='replace')}"
        return reply.json["answers"]


@contextmanager
def serve(
    *models: str, keys: tuple[str, ...] = (), plugins: Plugins | None = None, **settings: Any
) -> Iterator[TestServer]:
    """Serve NAME[=FOLDER] texts on a free port until the block ends.

    `settings` are fields of ServeConfig; `plugins` replaces what is installed.
    """
    choices = [ModelChoice.parse(text) for text in models]
    config = ServeConfig(models=choices, port=0, **settings)
    metrics = Metrics()
    engines = build(config, plugins or discover(), metrics)
    service = Service(engines=engines, config=config, keys=Keys(keys), metrics=metrics)
    server = DrainingServer(service)
    thread = threading.Thread(target=lambda: asyncio.run(server.serve_all()), daemon=True)
    thread.start()
    try:
        yield TestServer(_port_when_ready(server, thread))
    finally:
        server.should_exit = True
        thread.join(START_LIMIT_S)


def _port_when_ready(server: DrainingServer, thread: threading.Thread) -> int:
    deadline = time.monotonic() + START_LIMIT_S
    while time.monotonic() < deadline:
        if server.error is not None:
            raise server.error
        if server.started and server.engines.state == "ok":
            return server.bound_port
        if not thread.is_alive():
            raise RuntimeError("the server ended before it was ready")
        time.sleep(0.005)
    raise TimeoutError(f"the server was not ready within {START_LIMIT_S} s")
