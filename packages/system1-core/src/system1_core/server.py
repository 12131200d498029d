"""The HTTP server: routes, keys, request ids, error bodies."""

from __future__ import annotations

import asyncio
import logging
import re
import uuid
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from time import perf_counter
from typing import Any, TypeVar

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from system1_core import __version__
from system1_core.auth import Keys
from system1_core.config import PROFILES, ServeConfig
from system1_core.docs_page import docs_page
from system1_core.engine import Engine
from system1_core.engines import Engines
from system1_core.errors import (
    DeadlineExceeded,
    InferenceFailed,
    InvalidRequest,
    MethodNotAllowed,
    ModelUnavailable,
    NotFound,
    System1Error,
    abridged,
)
from system1_core.family import Route
from system1_core.metrics import Metrics
from system1_core.request import Request
from system1_core.wire.decisions import Decisions
from system1_core.wire.dialect import Body, Dialect, RequestLimits
from system1_core.wire.schema import openapi_document
from system1_core.wire.strict_json import dumps
from system1_core.wire.systemone import SystemOne
from system1_core.wire.text_size import check_text_size, check_texts
from system1_core.wire.transport import ClientGone, decode, read_body

logger = logging.getLogger("system1")

REQUEST_ID = "x-typesafe-request-id"
PROFILE_HEADER = "x-system1-profile"
_WELL_FORMED_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")
# Above this size decompressing and parsing take over a millisecond: leave the event loop.
_DECODE_INLINE_BYTES = 64 * 1024

Parsed = TypeVar("Parsed", Request, list[Request])
Result = TypeVar("Result")
Endpoint = Callable[[HttpRequest], Awaitable[Response]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """What the routes share."""

    engines: Engines
    config: ServeConfig = field(default_factory=ServeConfig)
    keys: Keys = field(default_factory=Keys)
    metrics: Metrics = field(default_factory=Metrics)
    systemone: Dialect = field(default_factory=SystemOne)
    decisions: Dialect = field(default_factory=Decisions)
    exchanges: set[asyncio.Task[Any]] = field(default_factory=set)


def make_app(service: Service) -> FastAPI:
    """The ASGI application; the engines are started and closed by whoever runs it."""
    app = FastAPI(
        title="system1", version=__version__, openapi_url=None, docs_url=None, redoc_url=None,
        redirect_slashes=False,
    )  # fmt: skip
    routes = Routes(service)
    for prefix in dict.fromkeys(("", service.config.root_path)):
        routes.add_to(app, prefix)
    app.add_exception_handler(HTTPException, routes.http_error)  # type: ignore[arg-type]
    app.add_exception_handler(Exception, routes.unexpected)
    if service.config.cors_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(service.config.cors_origins),
            allow_methods=["GET", "POST"],
            allow_headers=["*"],
            expose_headers=[REQUEST_ID, "retry-after", "retry-after-ms"],
        )
    return app


class Routes:
    """The endpoints of one service."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def add_to(self, app: FastAPI, prefix: str) -> None:
        """Register every route below `prefix`."""
        service = self._service
        post: dict[str, Endpoint] = {
            "/v1/systemone": self._exchange("systemone", service.systemone, self._answer),
            "/v1/systemone/batch": self._exchange("batch", service.systemone, self._answer_batch),
            "/v1/decisions": self._exchange("decisions", service.decisions, self._answer),
        }
        for engine in service.engines.all:
            for route in engine.family.routes:
                handle = self._extra(engine, route)
                post[route.path] = self._exchange(route.path, service.systemone, handle)
        get: dict[str, Endpoint] = {
            "/": self._playground,
            "/health": self._health,
            "/v1/models": self._models,
            "/metrics": self._metrics,
            "/openapi.json": self._openapi,
            "/docs": self._docs,
        }
        for path, endpoint in post.items():
            app.add_route(prefix + path, endpoint, methods=["POST"])
        for path, endpoint in get.items():
            app.add_route(prefix + path, endpoint, methods=["GET"])

    def _exchange(
        self, name: str, dialect: Dialect, handle: Callable[[Exchange, Body], Awaitable[Any]]
    ) -> Endpoint:
        async def endpoint(http: HttpRequest) -> Response:
            return await Exchange(self._service, http, name, dialect).run(handle)

        return endpoint

    async def _answer(self, exchange: Exchange, body: Body) -> Any:
        engine, dialect = exchange.choose(body)
        request = await self._parse(exchange, dialect.parse, body)
        result = await engine.answer(request, exchange.deadline)
        return dialect.render(request, result, result.model or engine.name)

    async def _answer_batch(self, exchange: Exchange, body: Body) -> Any:
        engine, dialect = exchange.choose(body)
        requests = await self._parse(exchange, dialect.parse_batch, body)
        results = await engine.answer_batch(requests, exchange.deadline)
        return dialect.render_batch(requests, results, engine.name)

    async def _parse(
        self, exchange: Exchange, parse: Callable[[Body, RequestLimits], Parsed], body: Body
    ) -> Parsed:
        """Large bodies may hold images: decoding and hashing them would hold up the event loop."""
        if body.num_bytes <= _DECODE_INLINE_BYTES:
            return self._parse_now(parse, body)
        return await exchange.in_thread(self._parse_now, parse, body)

    def _parse_now(self, parse: Callable[[Body, RequestLimits], Parsed], body: Body) -> Parsed:
        limits = self._service.config.limits
        parsed = parse(body, limits)
        check_text_size(parsed if isinstance(parsed, list) else [parsed], limits)
        return parsed

    def _extra(self, engine: Engine, route: Route) -> Callable[[Exchange, Body], Awaitable[Any]]:
        limits = self._service.config.limits

        async def handle(exchange: Exchange, body: Body) -> Any:
            # A character is at least one byte of the body.
            if body.num_bytes > limits.max_text_chars:
                check_texts(body.json, (), limits, "the body's texts")
            return await route.answer(engine, body.json, exchange.deadline)

        return handle

    async def _health(self, http: HttpRequest) -> Response:
        engines = self._service.engines
        state = engines.state
        body: dict[str, Any] = {"status": state}
        if self._service.keys.accept(http.headers.get("authorization")):
            body |= {
                "model": engines.first.name,
                "version": __version__,
                "models": [_engine_health(engine) for engine in engines.all],
            }
            if engines.reason:
                body["reason"] = engines.reason
        unavailable = ModelUnavailable(state)
        headers = {} if state == "ok" else dict(unavailable.headers)
        return respond(http, 200 if state == "ok" else 503, body, headers)

    async def _models(self, http: HttpRequest) -> Response:
        return self._guarded(http, lambda: respond(http, 200, self._service.engines.models()))

    async def _metrics(self, http: HttpRequest) -> Response:
        metrics = self._service.metrics
        return self._guarded(
            http,
            lambda: Response(
                metrics.render(), headers=base_headers(http), media_type=metrics.content_type
            ),
        )

    async def _openapi(self, http: HttpRequest) -> Response:
        # With a key the description of the server is not public.
        if self._service.keys.required:
            return self._error(http, NotFound("not found"))
        return respond(http, 200, self._document())

    async def _docs(self, http: HttpRequest) -> Response:
        if self._service.keys.required:
            return self._error(http, NotFound("not found"))
        page = docs_page(self._document())
        return Response(page, headers=base_headers(http), media_type="text/html")

    def _document(self) -> dict[str, Any]:
        config = self._service.config
        return openapi_document(__version__, config.root_path, config.limits)

    async def _playground(self, http: HttpRequest) -> Response:
        page = files("system1_core").joinpath("playground.html").read_text("utf-8")
        return Response(page, headers=base_headers(http), media_type="text/html")

    def _guarded(self, http: HttpRequest, respond_: Callable[[], Response]) -> Response:
        try:
            self._service.keys.check(http.headers.get("authorization"))
        except System1Error as error:
            return self._error(http, error)
        return respond_()

    def _error(self, http: HttpRequest, error: System1Error) -> Response:
        dialect = self._service.systemone
        return respond(http, error.status, dialect.error(error), error.headers)

    async def http_error(self, http: HttpRequest, error: HTTPException) -> Response:
        """Unknown paths and wrong methods, in the protocol's shape."""
        if error.status_code == 405:
            allowed = (error.headers or {}).get("Allow", "")
            shaped: System1Error = MethodNotAllowed(
                f"{http.method} is not allowed here; allowed: {allowed}"
            )
            body = self._service.systemone.error(shaped)
            return respond(http, 405, body, error.headers or {})
        return self._error(http, NotFound(f"there is nothing at {abridged(http.url.path)}"))

    async def unexpected(self, http: HttpRequest, error: Exception) -> Response:
        """Anything else that escaped: says nothing of the inside."""
        return self._error(http, InferenceFailed())


class Exchange:
    """One POST: read, decode, answer, and turn what goes wrong into a response."""

    def __init__(self, service: Service, http: HttpRequest, route: str, dialect: Dialect) -> None:
        self._service = service
        self._http = http
        self._route = route
        self._dialect = dialect
        self._model = ""
        self._is_answered = self._has_left = False
        self.deadline = 0.0

    async def run(self, handle: Callable[[Exchange, Body], Awaitable[Any]]) -> Response:
        """The response; the client's leaving cancels what has not been dispatched."""
        metrics, exchanges = self._service.metrics, self._service.exchanges
        task = asyncio.current_task()
        assert task is not None
        started = perf_counter()
        metrics.num_in_flight += 1
        exchanges.add(task)
        try:
            answer = await self._answer(handle)
            took_ms = f"{(perf_counter() - started) * 1e3:.2f}"
            response = respond(self._http, 200, answer, {"x-system1-time-ms": took_ms})
        except System1Error as error:
            response = self._fail(error)
        except ClientGone:
            response = Response(status_code=499)  # nobody reads it; the metrics count it
        except asyncio.CancelledError:
            # Only draining cancels an exchange whose client is there.
            task.uncancel()
            response = self._fail(ModelUnavailable("the server is draining", retry_after_s=5))
        except Exception:
            logger.exception("%s failed", self._route)
            response = self._fail(InferenceFailed())
        finally:
            metrics.num_in_flight -= 1
            exchanges.discard(task)
        metrics.requests.labels(self._route, response.status_code).inc()
        metrics.request_seconds.labels(self._route).observe(perf_counter() - started)
        return response

    async def _answer(self, handle: Callable[[Exchange, Body], Awaitable[Any]]) -> Any:
        self._service.keys.check(self._http.headers.get("authorization"))
        self._check_ready()
        headers, limits = self._http.headers, self._service.config.transport
        raw = await read_body(self._http.receive, headers, limits)
        self.deadline = asyncio.get_running_loop().time() + self._service.config.request_timeout_s
        return await self._unless_client_leaves(self._handled(handle, raw))

    def _check_ready(self) -> None:
        engines = self._service.engines
        if engines.state != "ok":
            wait_s = 1.0 if engines.state == "loading" else 5.0
            raise ModelUnavailable(f"the server is {engines.state}", retry_after_s=wait_s)

    async def _handled(self, handle: Callable[[Exchange, Body], Awaitable[Any]], raw: bytes) -> Any:
        headers, limits = self._http.headers, self._service.config.transport
        if len(raw) <= _DECODE_INLINE_BYTES and "content-encoding" not in headers:
            return await handle(self, decode(raw, headers, limits))
        return await handle(self, await self.in_thread(decode, raw, headers, limits))

    async def in_thread(self, call: Callable[..., Result], *args: Any) -> Result:
        """`call(*args)` off the event loop; 504 where no thread is free or done in time."""
        try:
            async with asyncio.timeout_at(self.deadline):
                return await asyncio.to_thread(call, *args)
        except TimeoutError:
            raise DeadlineExceeded("the request's time ran out before its answer") from None

    def choose(self, body: Body) -> tuple[Engine, Dialect]:
        """The engine that the body's `model` means, and the dialect of the request's profile."""
        profile = self._http.headers.get(PROFILE_HEADER, self._service.config.profile)
        if profile not in PROFILES:
            raise InvalidRequest.at(
                (), f"header {PROFILE_HEADER}: {profile!r} is not one of {', '.join(PROFILES)}"
            )
        name = body.json.get("model") if isinstance(body.json, dict) else None
        reference = profile == "reference" and self._dialect is self._service.systemone
        engine = self._service.engines.resolve(
            name if isinstance(name, str) else None, reference=reference
        )
        self._model = engine.name
        if reference and engine.reference is not None:
            return engine, engine.reference
        return engine, self._dialect

    async def _unless_client_leaves(self, answering: Awaitable[Any]) -> Any:
        """Await `answering`; raises ClientGone, cancelling it, when the connection closes first."""
        exchange = asyncio.current_task()
        assert exchange is not None
        gone = asyncio.ensure_future(_disconnected(self._http.receive))
        gone.add_done_callback(lambda _: self._leave(exchange))
        try:
            return await answering
        except asyncio.CancelledError:
            if self._has_left:
                exchange.uncancel()
                raise ClientGone from None
            raise
        finally:
            self._is_answered = True
            gone.cancel()

    def _leave(self, exchange: asyncio.Task[Any]) -> None:
        if not self._is_answered:
            self._has_left = True
            exchange.cancel()

    def _fail(self, error: System1Error) -> Response:
        self._service.metrics.errors.labels(self._model, error.error_type).inc()
        return respond(self._http, error.status, self._dialect.error(error), error.headers)


async def _disconnected(receive: Callable[[], Awaitable[Any]]) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def base_headers(http: HttpRequest) -> dict[str, str]:
    """The request id: the client's own when it is well formed, else a new one."""
    for name in (REQUEST_ID, "x-request-id"):
        given = http.headers.get(name)
        if given is not None and _WELL_FORMED_ID.fullmatch(given):
            return {REQUEST_ID: given}
    return {REQUEST_ID: uuid.uuid4().hex}


def respond(
    http: HttpRequest, status: int, body: Any, headers: Mapping[str, str] | None = None
) -> Response:
    """A JSON response with the request id."""
    return Response(
        dumps(body),
        status_code=status,
        headers={**base_headers(http), **(headers or {})},
        media_type="application/json",
    )


def _engine_health(engine: Engine) -> dict[str, Any]:
    return {
        "name": engine.name,
        "status": engine.state,
        "backend": engine.backend.name,
        "device": engine.backend.device,
        "dtype": engine.dtype,
    }
