"""LAYA English on one GPU: the engine alone, HTTP, 64 clients, and what others take for the same.

    python benchmarks/h200/laya.py OUT.json [--device cpu --folder TINY_CHECKPOINT]

Builds a full-size checkpoint with random weights in a temporary folder, times the executor on rows
of 48 and 512 tokens (host to answers on the host), starts `system1 serve` on it, and asks it over
keep-alive connections. The clients of the throughput runs live in processes of their own
(`load.py`). Every request has another state; question and options are repeated, as agents do.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import random
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import load
import timing

# `laya` and `kernels` are files here and packages that the rivals import.
sys.path[0] = str(Path(__file__).parents[1])
MARKERS = (8, 16, 24)
# Engine only, milliseconds; requests a second over HTTP.
TARGETS = {"laya.48tok_engine_ms": 1.1, "laya.512tok_engine_ms": 1.9, "laya.c64_rps": 2000}
SERVE = "import sys; from system1_core.cli import main; sys.exit(main())"


def milliseconds(call: Callable[[], Any], repeats: int) -> list[float]:
    """By the host's clock, after a fifth as many unmeasured calls."""
    for _ in range(max(3, repeats // 5)):
        call()
    samples = []
    for _ in range(repeats):
        begin = time.perf_counter()
        call()
        samples.append((time.perf_counter() - begin) * 1e3)
    return samples


def summary(samples: list[float]) -> dict[str, Any]:
    ordered = sorted(samples)
    return {
        "median": statistics.median(ordered),
        "p95": ordered[-(-len(ordered) * 95 // 100) - 1],
        "samples": [round(sample, 4) for sample in samples],
    }


def measure_engine(folder: Path, device: str, repeats: int) -> dict[str, Any]:
    """The executor with and without graphs, by batch."""
    import torch

    from models_laya.load import load_executor
    from models_laya.tokens import LayaPrompt
    from system1_core.family import Load

    executor = load_executor(
        Load(family="laya-english", folder=folder, backend=backend_of(device), dtype="bfloat16")
    )
    begin = time.perf_counter()
    executor.warmup()
    results: dict[str, Any] = {"warmup_s": time.perf_counter() - begin}
    if executor.graphs:
        results["graph_bytes"] = executor.graphs["english"].used_bytes
    rng = random.Random(0)

    def prompt(length: int) -> LayaPrompt:
        ids = tuple(rng.randrange(1000) for _ in range(length))
        return LayaPrompt(ids, batch_key="english", markers=MARKERS, type_id=2)

    eager = torch.inference_mode()(executor.run)
    for name, lengths in {"48": [48], "512": [512], "8x48": [48] * 8, "64x48": [48] * 64}.items():
        prompts = [prompt(length) for length in lengths]
        graphed, plain = executor.execute(prompts), eager(prompts)
        results[name] = {
            "graphs": summary(milliseconds(partial(executor.execute, prompts), repeats)),
            "eager": summary(milliseconds(partial(eager, prompts), max(5, repeats // 10))),
            "largest_logit_difference": max(
                abs(one - other)
                for found, expected in zip(graphed, plain, strict=True)
                for one, other in zip(
                    (*found.logits, *found.act_logits),
                    (*expected.logits, *expected.act_logits),
                    strict=True,
                )
            ),
        }
    executor.close()
    return results


def backend_of(device: str) -> Any:
    if device == "cuda":
        from system1_cuda.plugin import CudaBackend

        return CudaBackend()
    from system1_torch.plugin import TorchBackend

    return TorchBackend(device=device, dtypes=("bfloat16",), default_dtype="bfloat16")


def measure_transformers(folder: Path, device: str, repeats: int) -> dict[str, Any]:
    """ModernBERT of Transformers and torch's own transformer layers as the head, bfloat16."""
    import torch
    from transformers import ModernBertConfig, ModernBertModel

    fields = json.loads((folder / "encoder/config.json").read_text())
    config = ModernBertConfig(**{k: v for k, v in fields.items() if k != "architectures"})
    width = config.hidden_size
    encoder = ModernBertModel(config).to(device, torch.bfloat16).eval()
    layers = [
        torch.nn.TransformerEncoderLayer(
            width, max(1, width // 64), 4 * width, batch_first=True, norm_first=True
        )
        for _ in range(2)
    ]
    head = torch.nn.Sequential(*layers).to(device, torch.bfloat16).eval()
    scorer = torch.nn.Linear(width, 1).to(device)

    @torch.inference_mode()
    def read(ids: torch.Tensor) -> list[float]:
        hidden = encoder(input_ids=ids.to(device)).last_hidden_state
        return scorer(head(hidden)[0, list(MARKERS)].float())[:, 0].tolist()

    tokens = {length: torch.randint(0, 1000, (1, length)) for length in (48, 512)}
    return {
        str(length): summary(milliseconds(partial(read, ids), repeats))
        for length, ids in tokens.items()
    }


def measure_original(folder: Path, device: str, repeats: int) -> dict[str, Any]:
    """The PyPI package `laya` in this process, tokenisation included, one question."""
    from laya import Agent

    agent = Agent(str(folder), device=device)
    bodies = iter([json.loads(load.body_of(index)) for index in range(2 * repeats + 10)])

    def ask() -> Any:
        body = next(bodies)
        return agent.predict(body["state"], body["questions"])["answers"]

    return summary(milliseconds(ask, repeats))


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Server:
    """`system1 serve` as a user starts it."""

    def __init__(self, folder: Path, device: str, log: Path) -> None:
        self.port = free_port()
        command = [sys.executable, "-c", SERVE, "serve", f"laya-english={folder}"]
        command += ["--device", device, "--dtype", "bfloat16", "--port", str(self.port)]
        self.process = subprocess.Popen(command, stderr=log.open("w"))
        begin = time.perf_counter()
        while not self.is_ready():
            if self.process.poll() is not None or time.perf_counter() - begin > 120:
                raise SystemExit(f"the server did not start:\n{log.read_text()[-4000:]}")
            time.sleep(0.2)
        self.start_s = time.perf_counter() - begin

    def is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/health") as response:
                return bool(response.status == 200)
        except OSError:
            return False

    def cpu_s(self) -> float:
        """Processor time of all its threads so far."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def batches(self) -> tuple[float, float]:
        """(batches run, prompts in them) so far."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics") as response:
            lines = response.read().decode().splitlines()
        values = [
            next(float(line.split()[-1]) for line in lines if line.startswith(name))
            for name in ("system1_batch_prompts_count", "system1_batch_prompts_sum")
        ]
        return values[0], values[1]

    def close(self) -> None:
        self.process.terminate()
        self.process.wait(60)


def measure_one_client(server: Server, repeats: int) -> dict[str, Any]:
    """One question over one keep-alive `http.client` connection."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port)
    bodies = (load.body_of(index) for index in range(1_000_000))

    def ask() -> bytes:
        headers = {"content-type": "application/json"}
        connection.request("POST", "/v1/systemone", next(bodies), headers)
        response = connection.getresponse()
        assert response.status == 200, response.read()
        return response.read()

    tokens = json.loads(ask())["usage"]["input_tokens"]
    return {"input_tokens": tokens, **summary(milliseconds(ask, repeats))}


def measure_throughput(server: Server, clients: int, seconds: float) -> dict[str, Any]:
    """`clients` connections from up to 8 processes, each asking again when it is answered."""
    processes = min(8, clients, os.cpu_count() or 1)
    shares = [clients // processes + (index < clients % processes) for index in range(processes)]
    cpu, batches, begin = server.cpu_s(), server.batches(), time.perf_counter()
    running = [
        subprocess.Popen(
            [sys.executable, "-S", load.__file__, *map(str, (server.port, share, seconds, index))],
            stdout=subprocess.PIPE,
        )
        for index, share in enumerate(shares)
    ]
    results = [json.loads(process.communicate()[0]) for process in running]
    wall = time.perf_counter() - begin
    after = server.batches()
    latencies = sorted(sample for result in results for sample in result["milliseconds"])
    asked = after[1] - batches[1]
    return {
        "clients": clients,
        "requests_per_second": sum(result["answered"] for result in results) / seconds,
        "not_200": sum(result["failed"] for result in results),
        "p50_ms": latencies[len(latencies) // 2],
        "p99_ms": latencies[len(latencies) * 99 // 100],
        "prompts_per_batch": asked / max(1, after[0] - batches[0]),
        "server_cpu_us_per_request": (server.cpu_s() - cpu) / max(1, asked) * 1e6,
        "server_cpus_busy": (server.cpu_s() - cpu) / wall,
    }


def attempt(name: str, call: Callable[[], Any]) -> Any:
    """A rival that cannot run here is reported, not fatal."""
    try:
        return call()
    except Exception as error:
        print(f"{name}: {type(error).__name__}: {error}", flush=True)
        return {"error": f"{type(error).__name__}: {error}"[:500]}


def show(name: str, result: Any) -> None:
    short = json.dumps(result, default=str)
    if isinstance(result, dict):
        drop = {"samples"}
        short = json.dumps(
            {
                key: {k: v for k, v in value.items() if k not in drop}
                if isinstance(value, dict)
                else value
                for key, value in result.items()
                if key not in drop
            }
        )
    print(f"== {name}: {short[:700]}", flush=True)


def run(options: argparse.Namespace) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder
        if folder is None:
            from laya_cpu import build_checkpoint

            folder = Path(temporary) / "laya-english"
            build_checkpoint(folder)
        device, repeats, seconds = options.device, options.repeats, options.seconds
        report: dict[str, Any] = {}

        def step(name: str, call: Callable[[], Any]) -> None:
            report[name] = attempt(name, call)
            show(name, report[name])

        step("engine", lambda: measure_engine(folder, device, repeats))
        server = Server(folder, device, Path(temporary) / "server.log")
        try:
            report["server_start_s"] = server.start_s
            step("http", lambda: measure_one_client(server, repeats))
            for index in range(2):
                step(f"c64, pass {index + 1}", lambda: measure_throughput(server, 64, seconds))
            step("c8", lambda: measure_throughput(server, 8, seconds / 2))
        finally:
            server.close()
            log = (Path(temporary) / "server.log").read_text()
            print(log[-3000:], flush=True)
        step("transformers", lambda: measure_transformers(folder, device, max(5, repeats // 5)))
        step("laya", lambda: measure_original(folder, device, max(5, repeats // 5)))
    return report


def rows_of(report: dict[str, Any]) -> list[dict[str, Any]]:
    """The table's rows; a part that failed has none."""
    values: dict[str, tuple[float | None, str]] = {}
    engine = report["engine"]
    for length in ("48", "512"):
        if length in engine:
            values[f"laya.{length}tok_engine_ms"] = (engine[length]["graphs"]["median"], "ms")
            values[f"laya.{length}tok_engine_eager_ms"] = (engine[length]["eager"]["median"], "ms")
        if length in report["transformers"]:
            median = report["transformers"][length]["median"]
            values[f"laya.{length}tok_transformers_ms"] = (median, "ms")
    passes = [report[f"c64, pass {index}"] for index in (1, 2)]
    if all("requests_per_second" in one for one in passes):
        rates = [one["requests_per_second"] for one in passes]
        values["laya.c64_rps"] = (statistics.median(rates), "requests/s")
    for name, key in (("laya.one_question_http_ms", "http"), ("laya.pypi_one_question_ms", "laya")):
        if "median" in report[key]:
            values[name] = (report[key]["median"], "ms")
    return [
        {"name": name, "value": value, "unit": unit, "target": TARGETS.get(name)}
        for name, (value, unit) in values.items()
    ]


def facts_of(device: str) -> dict[str, Any]:
    names = ("system1-core", "models-laya", "torch", "transformers", "laya", "uvicorn", "uvloop")
    found: dict[str, Any] = {
        "versions": {name: attempt(name, partial(version, name)) for name in names}
    }
    found["cpus"] = os.cpu_count()
    cpuinfo = Path("/proc/cpuinfo").read_text().splitlines()
    found["processor"] = next((x.split(":")[1].strip() for x in cpuinfo if "model name" in x), "")
    if device == "cuda":
        found |= timing.facts() | {"unit": "milliseconds"}
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--folder", type=Path, help="a checkpoint instead of the full-size one")
    parser.add_argument("--repeats", type=int, default=300)
    parser.add_argument("--seconds", type=float, default=6.0, help="of each throughput run")
    options = parser.parse_args()
    report = run(options)
    rows = rows_of(report)
    written = {"facts": facts_of(options.device), "rows": rows, "report": report}
    options.out.write_text(json.dumps(written) + "\n")
    for row in rows:
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
