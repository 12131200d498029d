"""OmniJev-4B on one GPU: a 1920 x 1080 screenshot with 1 to 12 questions, and 16 clients.

    python benchmarks/h200/omnijev_4b.py OUT.json [--parts http,c16,floor]

Serves random weights of the true size (`../random-weights`) in bfloat16. Questions are nouls,
choices of three and scores of three in turn. A row `1080p.qN_ms` is the median exchange of N
questions about one picture, each exchange with a picture of its own, less the medians of decoding
the picture and of parsing the body (measured in this process on the same bytes; they have rows
too, as has the whole exchange). `c16`: 16 clients with 12 questions each, no picture sent by two
of them, nothing cached between requests, everything included. `--png` sends PNG files instead of
JPEG.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks_random_weights.files import write_files
from bodies import data_url, load_processor, parse, screenshot, screenshots
from pictures import host_parts

from serving import (
    Client,
    Report,
    Server,
    arguments,
    measure_rate,
    measured_passes,
    run_apart,
    say,
    serving,
)

NAME = "omnijev-4b-random"
PARTS = "http,c16,floor"
COUNTS = (1, 3, 6, 12)
WIDTH, HEIGHT = 1920, 1080
CLIENTS, EACH = 16, 6
TARGETS = {
    "omnijev_4b.1080p.q1_ms": 14,
    "omnijev_4b.1080p.q3_ms": 14.5,
    "omnijev_4b.1080p.q6_ms": 15.5,
    "omnijev_4b.1080p.q12_ms": 19,
    "omnijev_4b.1080p.q12_c16_rps": 60,
}
SUBJECTS = (
    "the invoice", "an error dialog", "a search field", "the open mail", "a calendar", "the cart",
    "a login form", "the settings", "a video call", "the file list", "a chart", "the editor",
)  # fmt: skip


def questions(count: int) -> dict[str, Any]:
    """The first `count` of twelve questions."""
    asked: dict[str, Any] = {}
    for index, subject in enumerate(SUBJECTS[:count]):
        if index % 3 == 0:
            asked[f"q{index}"] = {"type": "noul", "instructions": f"The screen shows {subject}."}
        elif index % 3 == 1:
            criteria = {"click": f"click {subject}", "type text": None, "wait": None}
            text = f"What comes next for {subject}?"
            asked[f"q{index}"] = {"type": "choice", "instructions": text, "criteria": criteria}
        else:
            levels = ["harmless", "needs care", "irreversible"]
            text = f"How risky is a click on {subject}?"
            asked[f"q{index}"] = {"type": "score", "instructions": text, "criteria": levels}
    return asked


def body_of(picture: bytes, count: int, kind: str) -> bytes:
    item = {"type": "image_url", "image_url": {"url": data_url(picture, kind)}}
    state = [item, "Task: find the screen with the invoice."]
    return json.dumps({"state": state, "questions": questions(count)}).encode()


def measure_questions(
    server: Server, pictures: list[bytes], count: int, passes: int, kind: str
) -> dict[str, Any]:
    """One exchange for each picture and pass, behind an unmeasured pass."""
    bodies = [body_of(picture, count, kind) for picture in pictures]
    client = Client(server.port)
    found = measured_passes(
        passes, lambda number: client.ask_all(f"{count} questions, pass {number}", bodies)
    )
    client.close()
    return {
        "passes": found,
        "p50": statistics.median(one["p50"] for one in found),
        "picture_bytes": statistics.median(map(len, pictures)),
        **host_parts(pictures, bodies),
    }


def measure_served(report: Report, options: argparse.Namespace, folder: Path) -> None:
    parts, kind = options.parts.split(","), "png" if options.png else "jpeg"
    pictures = screenshots(WIDTH, HEIGHT, range(3 if options.tiny else 20), kind)
    with serving(NAME, folder, options, "bfloat16") as server:
        for count in COUNTS if "http" in parts else ():
            call = partial(measure_questions, server, pictures, count, options.passes, kind)
            if (found := report.part(f"{count} questions", call)) is not None:
                apart = found["decode_ms"] + found["parse_ms"]
                row = f"omnijev_4b.1080p.q{count}"
                report.row(f"{row}_ms", found["p50"] - apart)
                report.row(f"{row}_http_ms", found["p50"])
                report.row(f"{row}_decode_ms", found["decode_ms"])
                report.row(f"{row}_parse_ms", found["parse_ms"])
        if "c16" in parts:
            clients, each = (2, 1) if options.tiny else (CLIENTS, EACH)
            seeds = range(500, 500 + clients * each)
            drawn = screenshots(WIDTH, HEIGHT, seeds, kind)
            bodies = [body_of(picture, 12, kind) for picture in drawn]
            rates = []
            for number in range(1, options.passes + 1):
                call = partial(measure_rate, server, bodies, clients, options.seconds)
                if (found := report.part(f"c16, pass {number}", call)) is not None:
                    rates.append(found["requests_per_second"])
            if rates:
                name = "omnijev_4b.1080p.q12_c16_rps"
                report.row(name, statistics.median(rates), "requests/s")


def measure_floor(report: Report, options: argparse.Namespace, folder: Path) -> None:
    """Products and the tower's attention for the tokens that a tree of the questions holds."""
    from models_qwen3_5.planner import Planner

    processor = load_processor(NAME, folder)
    picture = screenshot(WIDTH, HEIGHT, 0)
    tokens, grid = {}, (0, 0)
    for count in COUNTS:
        prompts = processor.prepare(parse(json.loads(body_of(picture, count, "jpeg")))).prompts
        tokens[count] = Planner().plan(prompts).num_tokens
        grid = prompts[0].images[0].image.grid
    lengths = [*map(str, tokens.values()), "--image", *map(str, grid)]
    arguments_of = [str(folder), "--device", options.device, "--lengths", *lengths]
    run = partial(run_apart, "floor.py", *arguments_of)
    if (found := report.part("floor", run)) is not None:
        found["tokens"] = tokens
        image = found["image"]
        for count, length in tokens.items():
            floor = found["medians"][str(length)] + image["products_ms"] + image["attention_ms"]
            report.row(f"omnijev_4b.1080p.q{count}_floor_ms", floor)


def main() -> None:
    parser = arguments(__doc__, PARTS)
    parser.add_argument("--png", action="store_true", help="PNG pictures instead of JPEG")
    options = parser.parse_args()
    report = Report(options, TARGETS)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / NAME
        folder.mkdir()
        write_files(NAME, folder, tiny=options.tiny)
        say("files are there")
        if {"http", "c16"} & set(options.parts.split(",")):
            report.part("served", partial(measure_served, report, options, folder))
        if "floor" in options.parts.split(","):
            measure_floor(report, options, folder)
    report.write()
    say(f"written: {options.out}")


if __name__ == "__main__":
    main()
