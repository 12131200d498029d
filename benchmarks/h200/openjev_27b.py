"""Open-Jev-27B on one GPU: 74 requests over HTTP, 16 clients, a choice; and others in the same run.

    python benchmarks/h200/openjev_27b.py OUT.json [--parts http,c16,choice,floor,fla,flide,...]

Serves the true sizes with random weights (`../random-weights`), in bfloat16 and in FP8, one after
the other, and asks it the 74 prompt lengths of `../workloads/openjev_74_lengths.json` in their
order, one at a time. Every pass has other states. Behind the servers, each alone on the device:
the matrix products of the same lengths (`floor.py`), Transformers and flide (`rivals.py`).

Transformers, slow and flat over short lengths, is asked lengths that differ by 8 %; every other one
counts as its nearest.

Parts: http, c16, choice (of the server), floor, torch (Transformers with its own fallbacks), fla
(Transformers with flash-linear-attention), flide. `--dtypes bfloat16` leaves FP8 out.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks_random_weights.files import write_files
from bodies import OPTIONS, Exact, load_processor

from serving import (
    Client,
    Report,
    Server,
    arguments,
    measure_rate,
    measured_passes,
    over_passes,
    percentile,
    run_apart,
    say,
    serving,
    summary,
)

NAME = "openjev-27b-random"
WORKLOAD = Path(__file__).parents[1] / "workloads" / "openjev_74_lengths.json"
PARTS = "http,c16,choice,floor,torch,fla,flide"
SHORT = {"bfloat16": "bf16", "fp8": "fp8"}
TARGETS = {
    "openjev_27b.bf16.mean_http_ms": 37,
    "openjev_27b.bf16.ratio_gemm_floor": 1.12,
    "openjev_27b.bf16.p50_http_ms": 19,
    "openjev_27b.bf16.p95_http_ms": 180,
    "openjev_27b.fp8.mean_http_ms": 25,
    "openjev_27b.bf16.c16_107tok_rps": 120,
    "openjev_27b.bf16.choice4_2000tok_ratio": 1.15,
    "openjev_27b.bf16.flide_speedup": 1.25,
}
NOUL = {"type": "noul", "instructions": "Is it allowed?"}
CHOICE = {"type": "choice", "instructions": "What is the next step?", "criteria": OPTIONS}
CLIENTS, RATE_TOKENS, CHOICE_TOKENS = 16, 107, 2000


def measure_workload(
    server: Server, exact: Exact, lengths: Sequence[int], passes: int
) -> dict[str, Any]:
    """One request after the other, in the workload's order."""
    client = Client(server.port)

    def run(number: int) -> dict[str, Any]:
        bodies = [exact.body(n, 1000 * number + i) for i, n in enumerate(lengths)]
        took = client.ask_all(f"pass {number}", bodies)
        assert took["input_tokens"] == list(lengths), took["input_tokens"]
        chances = [answers["q"]["noul"] for answers in took.pop("answers")]
        say(f"probabilities from {min(chances):.3f} to {max(chances):.3f}")
        return took | {"probabilities": chances}

    found = measured_passes(passes, run)
    client.close()
    return {
        "lengths": list(lengths),
        "passes": found,
        "server_start_s": server.start_s,
        "command": server.command,
    }


def measure_choice(server: Server, exact: Exact, tokens: int, repeats: int) -> dict[str, Any]:
    """A choice of four and a noul over one state, in turn."""
    client, found = Client(server.port), {"noul": [], "choice": []}
    for index in range(repeats + 5):
        state = exact.state(tokens, 50_000 + index)
        for kind, question in (("noul", NOUL), ("choice", CHOICE)):
            body = json.dumps({"state": state, "questions": {"q": question}}).encode()
            took, _ = client.ask(body)
            if index >= 5:
                found[kind].append(took)
    client.close()
    medians = {kind: statistics.median(samples) for kind, samples in found.items()}
    return {"ratio": medians["choice"] / medians["noul"]} | {
        kind: summary(samples) | {"median": medians[kind]} for kind, samples in found.items()
    }


def measure_served(
    report: Report, options: argparse.Namespace, folder: Path, dtype: str, lengths: Sequence[int]
) -> None:
    parts, short = options.parts.split(","), SHORT[dtype]
    exact = Exact(load_processor(NAME, folder), NOUL)
    row = f"openjev_27b.{short}"
    with serving(NAME, folder, options, dtype) as server:
        if "http" in parts:
            call = partial(measure_workload, server, exact, lengths, options.passes)
            if (found := report.part(f"{short} http", call)) is not None:
                passes = [one["samples"] for one in found["passes"]]
                report.row(f"{row}.mean_http_ms", over_passes(passes, statistics.fmean))
                for percent in (50, 95):
                    value = over_passes(passes, partial(percentile, percent=percent))
                    report.row(f"{row}.p{percent}_http_ms", value)
        if "c16" in parts:
            bodies = [exact.body(RATE_TOKENS, 90_000 + i) for i in range(16 * CLIENTS)]
            rates = []
            for number in range(1, options.passes + 1):
                call = partial(measure_rate, server, bodies, CLIENTS, options.seconds)
                if (found := report.part(f"{short} c16, pass {number}", call)) is not None:
                    rates.append(found["requests_per_second"])
            if rates:
                name = f"{row}.c{CLIENTS}_{RATE_TOKENS}tok_rps"
                report.row(name, statistics.median(rates), "requests/s")
        if "choice" in parts:
            tokens = 300 if options.tiny else CHOICE_TOKENS
            call = partial(measure_choice, server, exact, tokens, 3 if options.tiny else 20)
            if (found := report.part(f"{short} choice", call)) is not None:
                report.row(f"{row}.choice4_2000tok_ratio", found["ratio"], "")
                report.row(f"{row}.noul_2000tok_http_ms", found["noul"]["median"])


def measure_others(
    report: Report, options: argparse.Namespace, folder: Path, lengths: Sequence[int]
) -> None:
    """What has the device to itself: products alone, and rivals on the same lengths."""
    parts = options.parts.split(",")
    place = [str(folder), "--device", options.device, "--lengths", *map(str, lengths)]
    few = [*place[:3], "--lengths", *map(str, thinned(lengths))]
    for dtype in options.dtypes:
        short = SHORT[dtype]
        if "floor" in parts:
            run = partial(run_apart, "floor.py", *place, "--dtype", dtype)
            if (found := report.part(f"{short} floor", run)) is not None:
                report.row(f"openjev_27b.{short}.gemm_floor_ms", mean_of(found, lengths))
        if "flide" in parts:
            run = partial(run_apart, "rivals.py", "flide", *few, "--dtype", dtype)
            if (found := report.part(f"{short} flide", run)) is not None:
                report.row(f"openjev_27b.{short}.flide_mean_ms", mean_of(found, lengths))
    for short in SHORT.values():
        mean, row = f"openjev_27b.{short}.mean_http_ms", f"openjev_27b.{short}"
        if mean in report.rows and (floor := report.rows.get(f"{row}.gemm_floor_ms")):
            report.row(f"{row}.ratio_gemm_floor", report.rows[mean][0] / floor[0], "")
        if mean in report.rows and (rival := report.rows.get(f"{row}.flide_mean_ms")):
            report.row(f"{row}.flide_speedup", rival[0] / report.rows[mean][0], "")
    for part in ("torch", "fla"):
        if part in parts:
            run = partial(run_apart, "rivals.py", part, *few, "--repeats", "3")
            if (found := report.part(f"Transformers, {part}", run)) is not None:
                name = f"openjev_27b.bf16.transformers_{part}_mean_ms"
                report.row(name, mean_of(found, lengths))


def thinned(lengths: Sequence[int], step: float = 1.08) -> list[int]:
    """Distinct lengths, rising, those left out that are within 8 % of the one before."""
    kept: list[int] = []
    for length in sorted(set(lengths)):
        if not kept or length >= step * kept[-1]:
            kept.append(length)
    return kept


def mean_of(found: dict[str, Any], lengths: Sequence[int]) -> float:
    """The mean over a workload of medians by length, of the nearest length that was measured."""
    medians = {int(length): value for length, value in found["medians"].items()}
    nearest = (min(medians, key=lambda n: abs(n - length)) for length in lengths)
    return statistics.fmean(medians[n] for n in nearest)


def main() -> None:
    parser = arguments(__doc__, PARTS)
    parser.add_argument("--dtypes", nargs="+", default=["bfloat16", "fp8"], choices=list(SHORT))
    options = parser.parse_args()
    lengths = json.loads(WORKLOAD.read_text())["lengths"]
    if options.tiny:
        lengths = sorted(lengths)[:30:6]
    report = Report(options, TARGETS)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / NAME
        folder.mkdir()
        write_files(NAME, folder, tiny=options.tiny)
        say("files are there")
        if {"http", "c16", "choice"} & set(options.parts.split(",")):
            for dtype in options.dtypes:
                call = partial(measure_served, report, options, folder, dtype, lengths)
                report.part(f"{SHORT[dtype]} served", call)
        measure_others(report, options, folder, lengths)
    report.write()
    say(f"written: {options.out}")


if __name__ == "__main__":
    main()
