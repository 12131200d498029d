"""Cua-S1 4B on one GPU: three text lengths and a picture over HTTP, and others in the same run.

    python benchmarks/h200/cuas1_4b.py OUT.json [--parts http,screenshot,floor,torch,fla,flide]

Serves both modalities with random weights of the true size (`../random-weights`) in bfloat16 and
asks one choice, one request at a time: texts of 139 (one option), 218 and 712 tokens (four), and
a picture of 1280 x 800 (1,000 image tokens). Every request has another state. The picture's row
is the median exchange less the medians of decoding it and of parsing its body, measured in this
process on the same bytes; both and the whole exchange have rows of their own. Its floor: the
tower's and the decoder's matrix products in CUDA graphs, and the tower's attention as SDPA does
it.
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
from bodies import OPTIONS, Exact, data_url, load_processor, screenshots
from pictures import host_parts

from serving import Client, Report, Server, arguments, measured_passes, run_apart, say, serving

NAME = "cuas1-4b-random"
PARTS = "http,screenshot,floor,torch,fla,flide"
LENGTHS = (139, 218, 712)
WIDTH, HEIGHT = 1280, 800
PATCH = 16
CHOICE = {"type": "choice", "instructions": "Answer the last message.", "criteria": OPTIONS}
# The system's text alone takes some 100 tokens, four options 60.
ONE = {"type": "choice", "instructions": "Close the dialog.", "criteria": {"ok": "Click OK"}}
TARGETS = {
    "cuas1_4b.139tok_ms": 4.1,
    "cuas1_4b.218tok_ms": 4.5,
    "cuas1_4b.712tok_ms": 9.6,
    **{f"cuas1_4b.{length}tok_flide_speedup": 1.25 for length in LENGTHS},
    "cuas1_4b.screenshot_ratio_floor": 1.3,
}


def measure_text(
    server: Server, exact: Exact, length: int, passes: int, repeats: int
) -> dict[str, Any]:
    """Passes of `repeats` exchanges, each with another state, behind an unmeasured one."""
    client = Client(server.port)

    def run(number: int) -> dict[str, Any]:
        first = 1000 * (length + number)
        bodies = [exact.body(length, first + index) for index in range(repeats)]
        took = client.ask_all(f"{length} tokens, pass {number}", bodies)
        assert set(took["input_tokens"]) == {length}, took["input_tokens"]
        return took

    found = measured_passes(passes, run)
    client.close()
    return {"passes": found, "p50": statistics.median(one["p50"] for one in found)}


def measure_screenshot(server: Server, passes: int, repeats: int) -> dict[str, Any]:
    """One picture, one question; each exchange has a picture of its own."""
    pictures = screenshots(WIDTH, HEIGHT, range(repeats))
    bodies = [
        json.dumps({"state": {"image": data_url(one)}, "questions": {"q": CHOICE}}).encode()
        for one in pictures
    ]
    client = Client(server.port)
    found = measured_passes(
        passes, lambda number: client.ask_all(f"screenshot, pass {number}", bodies)
    )
    client.close()
    return {
        "passes": found,
        "p50": statistics.median(one["p50"] for one in found),
        "input_tokens": found[0]["input_tokens"][0],
        "picture_bytes": statistics.median(map(len, pictures)),
        **host_parts(pictures, bodies),
    }


def measure_served(report: Report, options: argparse.Namespace, folder: Path) -> None:
    parts, repeats = options.parts.split(","), 5 if options.tiny else 40
    processor = load_processor(NAME, folder)
    with serving(NAME, folder, options, "bfloat16") as server:
        if "http" in parts:
            for length in LENGTHS:
                exact = Exact(processor, ONE if length == LENGTHS[0] else CHOICE)
                call = partial(measure_text, server, exact, length, options.passes, repeats)
                if (found := report.part(f"{length} tokens", call)) is not None:
                    report.row(f"cuas1_4b.{length}tok_ms", found["p50"])
        if "screenshot" in parts:
            call = partial(measure_screenshot, server, options.passes, repeats)
            if (found := report.part("screenshot", call)) is not None:
                apart = found["decode_ms"] + found["parse_ms"]
                report.row("cuas1_4b.screenshot_http_ms", found["p50"])
                report.row("cuas1_4b.screenshot_decode_ms", found["decode_ms"])
                report.row("cuas1_4b.screenshot_parse_ms", found["parse_ms"])
                report.row("cuas1_4b.screenshot_ms", found["p50"] - apart)


def measure_others(report: Report, options: argparse.Namespace, folder: Path) -> None:
    parts, inside = options.parts.split(","), folder / "multimodal"
    tokens = report.parts.get("screenshot", {}).get("input_tokens") or 1136
    place = ["--device", options.device, "--lengths", *map(str, LENGTHS)]
    if "floor" in parts:
        grid = [str(HEIGHT // PATCH), str(WIDTH // PATCH)]
        more = [str(tokens), "--image", *grid]
        run = partial(run_apart, "floor.py", str(inside), *place, *more)
        if (found := report.part("floor", run)) is not None:
            for length in LENGTHS:
                report.row(f"cuas1_4b.{length}tok_gemm_floor_ms", found["medians"][str(length)])
            floor = screenshot_floor(found, tokens)
            report.row("cuas1_4b.screenshot_floor_ms", floor)
            if ours := report.rows.get("cuas1_4b.screenshot_ms"):
                report.row("cuas1_4b.screenshot_ratio_floor", ours[0] / floor, "")
    rivals = {"torch": "transformers_torch", "fla": "transformers_fla", "flide": "flide"}
    for part, name in rivals.items():
        if part not in parts:
            continue
        run = partial(run_apart, "rivals.py", part, str(folder / "text"), *place, "--repeats", "15")
        if (found := report.part(name, run)) is not None:
            show_rival(report, name, found["medians"])


def screenshot_floor(found: dict[str, Any], tokens: int) -> float:
    image = found["image"]
    return float(found["medians"][str(tokens)] + image["products_ms"] + image["attention_ms"])


def show_rival(report: Report, name: str, medians: dict[str, float]) -> None:
    for length in LENGTHS:
        report.row(f"cuas1_4b.{length}tok_{name}_ms", medians[str(length)])
        ours: Sequence[Any] | None = report.rows.get(f"cuas1_4b.{length}tok_ms")
        if name == "flide" and ours:
            ratio = medians[str(length)] / ours[0]
            report.row(f"cuas1_4b.{length}tok_flide_speedup", ratio, "")


def main() -> None:
    options = arguments(__doc__, PARTS).parse_args()
    report = Report(options, TARGETS)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / NAME
        folder.mkdir()
        write_files(NAME, folder, tiny=options.tiny)
        say("files are there")
        if {"http", "screenshot"} & set(options.parts.split(",")):
            report.part("served", partial(measure_served, report, options, folder))
        measure_others(report, options, folder)
    report.write()
    say(f"written: {options.out}")


if __name__ == "__main__":
    main()
