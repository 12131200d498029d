"""A real server as a user starts it, clients that time whole exchanges, and the report of a run."""

from __future__ import annotations

import argparse
import http.client
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import load
import timing

_BEGIN = time.perf_counter()
_SERVE = "import sys; from system1_core.cli import main; sys.exit(main())"
_START_LIMIT_S = 400
# Behind an unmeasured pass: the server captures in idle time what it saw there.
_IDLE_S = 2.0
_DISTRIBUTIONS = (
    "system1-core", "system1-torch", "system1-cuda", "models-qwen3-5", "models-openjev",
    "models-cuas1", "models-omnijev", "torch", "triton", "transformers", "flash-linear-attention",
    "fla-core", "flide", "uvicorn", "uvloop", "httptools", "pillow", "tokenizers",
)  # fmt: skip
Row = tuple[str, float, str]


def say(text: str) -> None:
    """A line of progress with the seconds since the script began."""
    print(f"[{time.perf_counter() - _BEGIN:6.1f}] {text}", flush=True)


def summary(samples: Sequence[float]) -> dict[str, Any]:
    """Mean, p50 and p95 (nearest rank), and every sample."""
    return {
        "mean": statistics.fmean(samples),
        "p50": percentile(samples, 50),
        "p95": percentile(samples, 95),
        "samples": [round(sample, 4) for sample in samples],
    }


def percentile(samples: Sequence[float], percent: int) -> float:
    """Nearest rank."""
    return sorted(samples)[-(-len(samples) * percent // 100) - 1]


def over_passes(passes: Sequence[Sequence[float]], of: Callable[[Sequence[float]], float]) -> float:
    """The median over passes of what `of` makes of each."""
    return statistics.median(map(of, passes))


def measured_passes(passes: int, run: Callable[[int], dict[str, Any]]) -> list[dict[str, Any]]:
    """`run(number)` for each pass; number 0 warms up and is not kept."""
    found = []
    for number in range(passes + 1):
        took = run(number)
        if number:
            found.append(took)
        else:
            time.sleep(_IDLE_S)
    return found


class Server:
    """`system1 serve NAME=FOLDER` in a process of its own, ready when it is made."""

    def __init__(self, name: str, folder: Path, *, device: str, dtype: str, more: Sequence[str]):
        self.port = _free_port()
        self.log = folder.parent / f"{name}-{dtype}.log"
        arguments = ["serve", f"{name}={folder}", "--device", device, "--dtype", dtype, *more]
        self.command = ["system1", *arguments]
        begin = time.perf_counter()
        self.process = subprocess.Popen(
            [sys.executable, "-c", _SERVE, *arguments, "--port", str(self.port)],
            stdout=self.log.open("w"),
            stderr=subprocess.STDOUT,
        )
        while not self._is_ready():
            is_late = time.perf_counter() - begin > _START_LIMIT_S
            if is_late or self.process.poll() is not None:
                self.close()
                raise RuntimeError(f"the server did not start: {self.log.read_text()[-1500:]}")
            time.sleep(0.2)
        self.start_s = time.perf_counter() - begin
        say(f"{name} {dtype} ready after {self.start_s:.1f} s")

    def _is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/health") as response:
                return bool(json.load(response)["status"] == "ok")
        except (OSError, ValueError, KeyError):
            return False

    def metrics(self) -> dict[str, float]:
        """The server's own counters."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics") as response:
            lines = response.read().decode().splitlines()
        return {
            line.rsplit(" ", 1)[0]: float(line.rsplit(" ", 1)[1])
            for line in lines
            if line[:1] != "#"
        }

    def close(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


@contextmanager
def serving(name: str, folder: Path, options: argparse.Namespace, dtype: str) -> Iterator[Server]:
    """A server for the time of the block; the end of its log is shown."""
    server = Server(name, folder, device=options.device, dtype=dtype, more=options.serve)
    try:
        yield server
    finally:
        server.close()
        for line in server.log.read_text().splitlines():
            if "CUDA graphs" in line or "rror" in line:
                say(line[-300:])
        say("the server's last words:\n" + server.log.read_text()[-800:])


class Client:
    """One keep-alive `http.client` connection."""

    def __init__(self, port: int) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port)

    def ask(self, body: bytes) -> tuple[float, dict[str, Any]]:
        """(milliseconds of the whole exchange, the answer); raises unless it is a 200."""
        headers = {"content-type": "application/json"}
        begin = time.perf_counter()
        self._connection.request("POST", "/v1/systemone", body, headers)
        response = self._connection.getresponse()
        content = response.read()
        took = (time.perf_counter() - begin) * 1e3
        if response.status != 200:
            raise RuntimeError(f"{response.status}: {content[:500]!r}")
        return took, json.loads(content)

    def ask_all(self, what: str, bodies: Sequence[bytes]) -> dict[str, Any]:
        """One after the other: a summary of the exchanges, the server's own times, the answers."""
        answers = [self.ask(body) for body in bodies]
        took = summary([milliseconds for milliseconds, _ in answers])
        say(f"{what}: mean {took['mean']:.2f} p50 {took['p50']:.2f} p95 {took['p95']:.2f} ms")
        answered = [answer for _, answer in answers]
        return took | {
            "timing": [answer["x_timing"] for answer in answered],
            "input_tokens": [answer["usage"]["input_tokens"] for answer in answered],
            "answers": [answer["answers"] for answer in answered],
        }

    def close(self) -> None:
        self._connection.close()


def measure_rate(server: Server, bodies: Sequence[bytes], clients: int, seconds: float) -> Any:
    """Requests a second of `clients` keep-alive connections, each with bodies of its own."""
    processes = min(8, clients, os.cpu_count() or 1)
    shares = [clients // processes + (i < clients % processes) for i in range(processes)]
    with tempfile.NamedTemporaryFile(suffix=".jsonl") as file:
        file.write(b"\n".join(bodies))
        file.flush()
        before, first, running = server.metrics(), 0, []
        for share in shares:
            arguments = (server.port, share, seconds, first, file.name, clients)
            command = [sys.executable, "-S", load.__file__, *map(str, arguments)]
            running.append(subprocess.Popen(command, stdout=subprocess.PIPE))
            first += share
        results = [json.loads(process.communicate()[0]) for process in running]
    after = server.metrics()
    samples = [sample for result in results for sample in result["milliseconds"]]
    if not samples:
        raise RuntimeError(f"no answer within {seconds} s")
    batches, prompts = (
        sum(after[name] - before.get(name, 0) for name in after if name.startswith(start))
        for start in ("system1_batch_prompts_count", "system1_batch_prompts_sum")
    )
    return {
        "clients": clients,
        "requests_per_second": sum(result["answered"] for result in results) / seconds,
        "not_200": sum(result["failed"] for result in results),
        "prompts_per_batch": prompts / max(1, batches),
        **summary(samples),
    }


def run_apart(script: str, *arguments: str, limit_s: float = 420) -> Any:
    """The JSON that a script beside this one writes, run in a process of its own."""
    with tempfile.TemporaryDirectory() as temporary:
        out = Path(temporary) / "out.json"
        command = [sys.executable, str(Path(__file__).parent / script), str(out), *arguments]
        say("$ " + " ".join([script, *arguments])[:200])
        with (Path(temporary) / "errors.log").open("w+") as errors:
            process = subprocess.run(command, stderr=errors, timeout=limit_s)
            if process.returncode:
                errors.seek(0)
                raise RuntimeError(f"{script}: exit {process.returncode}: {errors.read()[-1500:]}")
        return json.loads(out.read_text())


class Report:
    """What a run found, written after every part so that a late failure costs nothing."""

    def __init__(self, options: argparse.Namespace, targets: dict[str, float]) -> None:
        self._options, self._targets = options, targets
        self._facts = facts(options)
        self.parts: dict[str, Any] = {}
        self.rows: dict[str, tuple[float, str]] = {}

    def part(self, name: str, call: Callable[[], Any]) -> Any:
        """Run a part; one that fails is reported, not fatal. None then."""
        say(f"== {name}")
        try:
            self.parts[name] = call()
        except Exception as error:
            self.parts[name] = {"error": f"{type(error).__name__}: {error}"[:2000]}
            say(f"{name} failed: {self.parts[name]['error'][:1500]}")
            self.write()
            return None
        self.write()
        return self.parts[name]

    def row(self, name: str, value: float, unit: str = "ms") -> None:
        self.rows[name] = (value, unit)
        target = self._targets.get(name)
        say(f"-- {name} {value:.3f} {unit}" + (f" (target {target})" if target else ""))

    def write(self) -> None:
        listed = [
            {"name": name, "value": value, "unit": unit, "target": self._targets.get(name)}
            for name, (value, unit) in self.rows.items()
        ]
        content = {"facts": self._facts, "rows": listed, "parts": self.parts}
        self._options.out.write_text(json.dumps(content) + "\n")


def facts(options: argparse.Namespace) -> dict[str, Any]:
    """The command, device and versions behind the figures."""
    found: dict[str, Any] = {"command": ["python", *map(os.path.basename, sys.argv)]}
    found["versions"] = {name: _version(name) for name in _DISTRIBUTIONS}
    found["cpus"] = os.cpu_count()
    cpuinfo = Path("/proc/cpuinfo").read_text().splitlines()
    found["processor"] = next((x.split(":")[1].strip() for x in cpuinfo if "model name" in x), "")
    if options.device == "cuda":
        # In a process of its own this would be fair too; the context costs some hundred megabytes.
        found |= timing.facts() | {"unit": "milliseconds"}
    return found


def arguments(description: str | None, parts: str) -> argparse.ArgumentParser:
    """What all the scripts take."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path)
    parser.add_argument("--parts", default=parts, help=f"of {parts}, with commas")
    parser.add_argument(
        "--passes", type=int, default=2, help="measured passes, behind one unmeasured"
    )
    parser.add_argument("--seconds", type=float, default=8.0, help="of each throughput run")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--tiny", action="store_true", help="a few small layers, for a CPU")
    parser.add_argument("--serve", nargs="*", default=[], help="more arguments of system1 serve")
    return parser


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
