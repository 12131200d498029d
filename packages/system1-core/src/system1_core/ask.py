"""One decision from the shell: build it, ask it, show it."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import Request as UrlRequest
from urllib.request import urlopen

from rich.console import Console
from rich.table import Table
from rich.text import Text

from system1_core.config import ServeConfig
from system1_core.engine import Engine
from system1_core.engines import Engines, build, example_request
from system1_core.errors import ConfigError, DependencyFailed
from system1_core.metrics import Metrics
from system1_core.plugins import discover
from system1_core.wire.dialect import Body, RequestLimits
from system1_core.wire.systemone import SystemOne

BAR_WIDTH = 30

Json = dict[str, Any]


def request_body(
    state: str | None, choices: Sequence[str], scores: Sequence[str], nouls: Sequence[str]
) -> Json | None:
    """The request for what the command line asks; None means the model's example.

    Raises ConfigError for a question without options, or questions without a state.
    """
    questions: Json = {}
    for text in choices:
        question, options = _split(text, "--choice")
        pairs = [option.partition("=") for option in options]
        criteria = {name.strip(): description.strip() or None for name, _, description in pairs}
        if len(criteria) < len(options):
            raise ConfigError(f"--choice {text!r}: an option occurs twice")
        questions[question] = {"type": "choice", "instructions": question, "criteria": criteria}
    for text in scores:
        question, levels = _split(text, "--score")
        questions[question] = {"type": "score", "instructions": question, "criteria": levels}
    for question in nouls:
        if not question.strip():
            raise ConfigError("--noul: the question is empty")
        questions[question] = {"type": "noul", "instructions": question}
    for text in (state or "", *choices, *scores, *nouls):
        if not text.isascii() and any("\ud800" <= char <= "\udfff" for char in text):
            raise ConfigError("the state or a question is not valid UTF-8: convert it first")
    if state is None and not questions:
        return None
    if state is None or not questions:
        raise ConfigError(
            "give a state and at least one of --choice, --score, --noul; for instance: "
            'system1 ask "My card was charged twice" --noul "Is this about a payment?"'
        )
    return {"state": state, "questions": questions}


def _split(text: str, option: str) -> tuple[str, list[str]]:
    question, *rest = (part.strip() for part in text.split("|"))
    if not question or not rest or not all(rest):
        raise ConfigError(f'{option} {text!r}: expected "QUESTION | FIRST | SECOND | ..."')
    return question, rest


def ask_here(config: ServeConfig, body: Json | None) -> tuple[Json, Json]:
    """Load the model in this process; the request and the response body."""
    engines = build(config, discover(), Metrics())
    return asyncio.run(_ask_engine(engines, body))


async def _ask_engine(engines: Engines, body: Json | None) -> tuple[Json, Json]:
    engine = engines.first
    await engine.start(None)
    try:
        sent = body or _example(engine)
        return sent, await _answer(engine, sent)
    finally:
        await engines.close()


async def _answer(engine: Engine, body: Json) -> Json:
    dialect = SystemOne()
    request = dialect.parse(Body(json=body), RequestLimits())
    result = await engine.answer(request)
    return dialect.render(request, result, result.model or engine.name)


def _example(engine: Engine) -> Json:
    if engine.family.example is None:
        raise ConfigError(f"{engine.name} has no example: give a state and a question")
    return dict(engine.family.example)


def ask_server(
    url: str, api_key: str | None, model: str | None, body: Json | None
) -> tuple[Json, Json]:
    """Ask a running server; raises DependencyFailed with what it said."""
    if body is None:
        raise ConfigError("--url: give a state and a question")
    if not url.startswith(("http://", "https://")):
        raise ConfigError(f"--url {url!r}: begin it with http:// or https://")
    url = url.rstrip("/").removesuffix("/v1")
    sent = {"model": model or "jev-latest", **body}
    headers = {"Content-Type": "application/json"}
    if api_key:
        headers["Authorization"] = f"Bearer {api_key}"
    request = UrlRequest(url.rstrip("/") + "/v1/systemone", json.dumps(sent).encode(), headers)
    try:
        with urlopen(request, timeout=60) as response:
            return sent, json.load(response)
    except HTTPError as error:
        raise DependencyFailed(f"{url} answered {error.code}: {error.read().decode()}") from None
    except (URLError, OSError) as error:
        raise DependencyFailed(f"cannot reach {url}: {error}") from None


def print_answers(body: Json, response: Json, *, as_json: bool) -> None:
    """Bars and percentages on a terminal, or the response body as JSON."""
    if as_json:
        print(json.dumps(response, ensure_ascii=False, indent=2))
        return
    console = Console()
    state = body["state"]
    shown = state if isinstance(state, str) else json.dumps(state, ensure_ascii=False)
    console.print(Text(shown if len(shown) <= 400 else shown[:400] + " …", style="italic"))
    for name, answer in response["answers"].items():
        console.print()
        console.print(_answer_table(body["questions"][name], name, answer))
    tokens = response["usage"]["input_tokens"]
    timing = response.get("x_timing", {})
    took = f", {timing['model_ms']:.1f} ms" if "model_ms" in timing else ""
    console.print(Text(f"\n{response['model']}, {tokens} tokens{took}", style="dim"))


def _answer_table(question: Json, name: str, answer: Json) -> Table:
    table = Table(box=None, show_header=False, pad_edge=False, title_justify="left")
    table.title = Text(str(question.get("instructions") or name), style="bold")
    table.add_column(justify="right")
    table.add_column(width=BAR_WIDTH)
    table.add_column(justify="right")
    best, rows = _rows(answer)
    for label, probability in rows:
        style = "green" if label == best else "dim"
        bar = "█" * round(probability * BAR_WIDTH)
        table.add_row(Text(label, style), Text(bar, style), Text(f"{probability:.1%}", style))
    table.caption = Text(_verdict(answer), style="dim")
    table.caption_justify = "left"
    return table


def _rows(answer: Json) -> tuple[str, list[tuple[str, float]]]:
    """The label to highlight, and (label, probability) rows."""
    if answer["type"] == "noul":
        yes = answer["noul"]
        return ("yes" if yes >= 0.5 else "no"), [("yes", yes), ("no", 1 - yes)]
    probabilities: Mapping[str, float] = answer["probabilities"]
    best = max(probabilities, key=probabilities.__getitem__)
    if answer["type"] == "choice":
        return best, list(probabilities.items())
    legend = {level: _short(text) for level, text in answer["legend"].items()}
    rows = [(f"{level} {legend[level]}", p) for level, p in probabilities.items()]
    return f"{best} {legend[best]}", rows


def _short(level: Any) -> str:
    return level if isinstance(level, str) else json.dumps(level, ensure_ascii=False)


def _verdict(answer: Json) -> str:
    if answer["type"] == "noul":
        return ""
    confidence = f"confidence {answer['confidence']:.0%}"
    if answer["type"] == "score":
        return f"score {answer['score']:.2f}, {confidence}"
    return confidence


def check_models(config: ServeConfig) -> None:
    """Answer every model's example twice and say so; ends the process with 1 on a difference."""
    engines = build(config, discover(), Metrics())
    results = asyncio.run(_check_all(engines))
    for name, problem in results.items():
        print(f"{name}: {problem or 'ok'}")
    if any(results.values()):
        sys.exit(1)


async def _check_all(engines: Engines) -> dict[str, str]:
    results: dict[str, str] = {}
    for engine in engines.all:
        await engine.start(example_request(engine.family))
        try:
            body = _example(engine)
            first, second = [(await _answer(engine, body))["answers"] for _ in range(2)]
            results[engine.name] = "" if first == second else "two equal requests differ"
        finally:
            await engine.close()
    return results
