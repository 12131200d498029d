"""One server process: bind, load, serve, drain."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import uvicorn

from system1_core.auth import load_keys
from system1_core.config import ServeConfig
from system1_core.engines import Engines, build
from system1_core.errors import ConfigError
from system1_core.metrics import Metrics
from system1_core.plugins import Plugins
from system1_core.server import Service, make_app

logger = logging.getLogger("system1")

# The SDKs keep idle connections for 30 s: close later than they do, or they meet a reset.
KEEP_ALIVE_S = 75
SWITCH_INTERVAL_S = 0.0002
# After the drain limit the process ends by itself within this time.
FORCED_EXIT_S = 3.0


class DrainingServer(uvicorn.Server):
    """Answers 503 to new requests after SIGTERM, finishes the admitted ones, then exits."""

    def __init__(self, service: Service) -> None:
        config = service.config
        super().__init__(
            uvicorn.Config(
                make_app(service),
                host=config.host,
                port=config.port,
                log_config=None,
                access_log=False,
                server_header=False,
                lifespan="off",
                http=_http_protocol(),
                timeout_keep_alive=KEEP_ALIVE_S,
                backlog=2048,
                ws="none",
            )
        )
        self._service = service
        self._drain: asyncio.Task[None] | None = None
        self.error: Exception | None = None

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """First signal: drain. Second: leave at once."""
        if self._service.engines.draining:
            os._exit(1)
        self._service.engines.draining = True
        self._loop.call_soon_threadsafe(self._begin_drain)

    def _begin_drain(self) -> None:
        self._drain = self._loop.create_task(self._drained())

    async def _drained(self) -> None:
        """Wait for the admitted requests up to the limit, then answer the rest 503 and leave."""
        metrics = self._service.metrics
        limit_s = self._service.config.drain_timeout_s
        # Whatever hangs (a client that does not read, a device), the process ends.
        self._loop.call_later(limit_s + FORCED_EXIT_S, os._exit, 1)
        deadline = self._loop.time() + limit_s
        logger.info("draining: no new requests, %d to finish", metrics.num_in_flight)
        while metrics.num_in_flight and self._loop.time() < deadline:
            await asyncio.sleep(0.05)
        if metrics.num_in_flight:
            logger.warning("drain limit of %g s reached: the rest gets 503", limit_s)
            for exchange in list(self._service.exchanges):
                exchange.cancel("draining")
            await asyncio.sleep(0.2)
        self.should_exit = True
        # Responses that are not read yet have until the limit.
        self._loop.call_at(max(deadline, self._loop.time() + 1), self._force_exit)

    def _force_exit(self) -> None:
        self.force_exit = True

    async def serve_all(self) -> None:
        """Bind, load in the background while /health says "loading", serve until told to stop."""
        self._loop = asyncio.get_running_loop()
        loading = asyncio.create_task(self._load())
        try:
            await self.serve()
        finally:
            loading.cancel()
            await asyncio.gather(loading, return_exceptions=True)
            await self._service.engines.close()

    async def _load(self) -> None:
        try:
            await self._service.engines.start()
        except Exception as error:
            self.error = error
            self.should_exit = True
            return
        _spare_the_collector()
        host, port = self._service.config.host, self.bound_port
        names = ", ".join(engine.name for engine in self._service.engines.all)
        shown = f"[{host}]" if ":" in host else host
        logger.info("serving %s on http://%s:%d", names, shown, port)

    @property
    def engines(self) -> Engines:
        """What is served."""
        return self._service.engines

    @property
    def bound_port(self) -> int:
        """The port listened on, also when the configuration said 0."""
        for server in getattr(self, "servers", ()):
            for socket in server.sockets:
                return int(socket.getsockname()[1])
        return self._service.config.port


def _share_the_interpreter() -> None:
    """Let an executor's thread in soon while the event loop is busy, and the loop after it.

    A thread takes the interpreter again after every wait for its device; at Python's own 5 ms each
    time, device and event loop work in turns instead of at once (LAYA on an H200, 64 clients: 1,877
    requests/s; 2,294 at 1 ms, 2,408 at 0.2 ms).
    """
    sys.setswitchinterval(SWITCH_INTERVAL_S)


def _spare_the_collector() -> None:
    """What is loaded stays: look for cycles among the requests' objects only, and less often.

    With torch imported the collector took 60 to 150 us of processor time a request (2 cores,
    64 clients, LAYA without its network).
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)


def serve(config: ServeConfig, plugins: Plugins) -> None:
    """Serve until a signal; raises what made loading fail, ConfigError when the port is taken."""
    metrics = Metrics()
    service = Service(
        engines=build(config, plugins, metrics),
        config=config,
        keys=load_keys(config.api_key_file),
        metrics=metrics,
    )
    server = DrainingServer(service)
    _share_the_interpreter()
    try:
        with asyncio.Runner(loop_factory=_new_event_loop()) as runner:
            runner.run(server.serve_all())
    except SystemExit:
        raise ConfigError(
            f"cannot listen on --host {config.host} --port {config.port}, see the line above: stop "
            "what uses the port, or choose another with --port"
        ) from None
    except KeyboardInterrupt:
        pass
    if server.error is not None:
        raise server.error


def _new_event_loop() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop's where it is installed (it has no Windows build), else asyncio's own."""
    try:
        import uvloop
    except ImportError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory


def _http_protocol() -> Any:
    """Ours over httptools, where it is installed (CPython), else uvicorn's choice."""
    try:
        from system1_core.http_protocol import BoundedHttpProtocol
    except ImportError:
        return "auto"
    return BoundedHttpProtocol
