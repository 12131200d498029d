"""What the path of a request costs when the model costs nothing.

    python benchmarks/overhead.py --out benchmarks/results/cpu/overhead.json

A null executor (and a processor that tokenises nothing) behind the real engine and scheduler,
measured in process, one request at a time: `path` goes from the body's bytes to the response's
bytes (decode, parse, prepare, schedule, thread hop, finish, render); `asgi` is the whole ASGI
application without a socket: routing, keys, request id, the watch for a client that leaves,
metrics. Microseconds.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import platform
import statistics
from collections.abc import Awaitable, Callable
from pathlib import Path
from time import perf_counter
from typing import Any

from system1_core import (
    ChoiceAnswer,
    Executor,
    ModelFamily,
    NoulAnswer,
    Prepared,
    Processor,
    Prompt,
    ScoreAnswer,
    __version__,
    builtin,
    hookimpl,
    one_hot,
)
from system1_core.config import ServeConfig
from system1_core.engines import build
from system1_core.metrics import Metrics
from system1_core.plugins import collect
from system1_core.server import Service, make_app
from system1_core.wire.dialect import RequestLimits
from system1_core.wire.strict_json import dumps
from system1_core.wire.systemone import SystemOne
from system1_core.wire.transport import TransportLimits, decode

BODY = {
    "model": "jev-latest",
    "state": "I was charged twice for my order. Please refund the duplicate today. " * 4,
    "questions": {
        "team": {
            "type": "choice",
            "instructions": "Which team should handle this?",
            "criteria": {"billing": "charges and refunds", "technical": None, "sales": None},
        },
        "urgency": {
            "type": "score",
            "instructions": "How urgent is it?",
            "criteria": ["can wait", "soon", "today", "now"],
        },
        "refund": {"type": "noul", "instructions": "Does the customer ask for a refund?"},
    },
}
CALLS, WARMUP, REPEATS = 2_000, 500, 5


class NullProcessor(Processor):
    def prepare(self, request: Any) -> Prepared:
        return Prepared([Prompt([0]) for _ in request.questions], request.questions)

    def finish(self, context: Any, outputs: Any) -> Any:
        return [_answer(question) for question in context]


def _answer(question: Any) -> Any:
    probabilities = one_hot(question.options, 0)
    if question.type == "choice":
        return ChoiceAnswer(probabilities=probabilities)
    if question.type == "score":
        return ScoreAnswer(probabilities=list(probabilities.values()))
    return NoulAnswer(probability=0.0)


class NullExecutor(Executor):
    def execute(self, prompts: Any) -> list[int]:
        return [0] * len(prompts)


class NullPlugin:
    @hookimpl
    def system1_register_models(self) -> list[ModelFamily]:
        return [
            ModelFamily(
                name="null",
                load_processor=lambda load: NullProcessor(),
                load_executor=lambda load: NullExecutor(),
                default_rank=1,
            )
        ]


async def measure(call: Callable[[], Awaitable[object]]) -> list[float]:
    """Median microseconds of each repeat."""
    for _ in range(WARMUP):
        await call()
    medians = []
    for _ in range(REPEATS):
        samples = []
        for _ in range(CALLS):
            started = perf_counter()
            await call()
            samples.append((perf_counter() - started) * 1e6)
        medians.append(statistics.median(samples))
    return medians


async def run() -> dict[str, list[float]]:
    metrics = Metrics()
    plugins = collect(
        [
            ("system1-core", __version__, "builtin", lambda: builtin),
            ("null", "0", "null", NullPlugin),
        ]
    )
    engines = build(ServeConfig(), plugins, metrics)
    await engines.start()
    app = make_app(Service(engines=engines, metrics=metrics))
    raw = json.dumps(BODY).encode()
    engine, dialect = engines.first, SystemOne()
    transport, limits = TransportLimits(), RequestLimits()

    async def path() -> bytes:
        request = dialect.parse(decode(raw, {}, transport), limits)
        result = await engine.answer(request)
        return dumps(dialect.render(request, result, engine.name))

    async def asgi() -> list[Any]:
        return await call_app(app, raw)

    assert json.loads(await path())["answers"]["team"]["choice"] == "billing"
    sent = await asgi()
    assert sent[0]["status"] == 200
    results = {"path_us": await measure(path), "asgi_us": await measure(asgi)}
    await engines.close()
    return results


async def call_app(app: Any, raw: bytes) -> list[Any]:
    """One POST through the ASGI application; the messages it sent."""
    sent: list[Any] = []
    messages = [{"type": "http.request", "body": raw, "more_body": False}]

    async def receive() -> Any:
        if messages:
            return messages.pop()
        return await asyncio.get_running_loop().create_future()  # the client stays

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "POST",
        "path": "/v1/systemone",
        "raw_path": b"/v1/systemone",
        "root_path": "",
        "scheme": "http",
        "query_string": b"",
        "headers": [(b"content-type", b"application/json")],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 8000),
    }
    await app(scope, receive, send)
    return sent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path)
    out = parser.parse_args().out
    try:
        import uvloop

        results = uvloop.run(run())
        loop = f"uvloop {uvloop.__version__}"
    except ImportError:
        results = asyncio.run(run())
        loop = "asyncio"
    report = {
        "benchmark": "overhead of the whole path with a null executor, 3 questions",
        "python": platform.python_version(),
        "processor": _processor(),
        "system1_core": __version__,
        "loop": loop,
        "calls_a_repeat": CALLS,
        "median_us_by_repeat": results,
        "rows": [
            {
                "name": f"overhead.{name}",
                "value": statistics.median(us),
                "unit": "us",
                "target": 300 if name == "path_us" else None,
            }
            for name, us in results.items()
        ],
    }
    print(json.dumps(report["rows"], indent=1))
    if out:
        out.write_text(json.dumps(report, indent=1) + "\n")


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor()


if __name__ == "__main__":
    main()
