"""Plots and the table of the H200 results, from the committed JSON.

    python benchmarks/plot.py [--results FOLDER] [--out FOLDER]

Writes `openjev_27b.svg` (milliseconds by prompt length: ours over HTTP, products alone, rivals) and
`rows.svg` (every row with a target, relative to it), and prints the table of README.md. A file
that is not there is left out. Needs matplotlib.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt

HERE = Path(__file__).parent
FILES = ("openjev_27b", "cuas1_4b", "omnijev_4b", "laya", "parity_4b", "parity_27b")
# More of these is better.
_RATES = ("_rps", "_speedup")


def read(folder: Path) -> dict[str, Any]:
    files = {name: folder / f"{name}.json" for name in FILES}
    return {n: json.loads(file.read_text("utf-8")) for n, file in files.items() if file.is_file()}


def rows_of(results: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for content in results.values():
        yield from content["rows"]


def is_met(row: dict[str, Any]) -> bool:
    if row["name"].endswith(_RATES):
        return bool(row["value"] >= row["target"])
    return bool(row["value"] <= row["target"])


def table(results: dict[str, Any]) -> str:
    """Every row; those with a target say whether it is met."""
    lines = ["| row | value | target | |", "|---|---:|---:|---|"]
    for row in rows_of(results):
        target = row["target"]
        word = "" if target is None else "met" if is_met(row) else "**miss**"
        shown = "" if target is None else f"{target:g}"
        lines.append(f"| `{row['name']}` | {row['value']:.4g} {row['unit']} | {shown} | {word} |")
    return "\n".join(lines)


def plot_lengths(result: dict[str, Any], file: Path) -> None:
    """Milliseconds by length on two logarithmic axes."""
    figure, axes = plt.subplots(figsize=(8, 5))
    for short, colour in (("bf16", "tab:blue"), ("fp8", "tab:orange")):
        parts = result["parts"]
        if "passes" in (http := parts.get(f"{short} http") or {}):
            for each in http["passes"]:
                axes.plot(http["lengths"], each["samples"], ".", color=colour, alpha=0.5)
            axes.plot([], [], ".", color=colour, label=f"ours over HTTP, {short}")
        for part, style, label in (("floor", "--", "products alone"), ("flide", "-", "flide")):
            _line(axes, parts.get(f"{short} {part}"), style, colour, f"{label}, {short}")
    for part, colour in (("torch", "tab:gray"), ("fla", "tab:green")):
        found = result["parts"].get(f"Transformers, {part}")
        _line(axes, found, "-", colour, f"Transformers, {part}")
    axes.set(xscale="log", yscale="log", xlabel="tokens", ylabel="milliseconds")
    axes.grid(visible=True, which="both", alpha=0.2)
    axes.legend(fontsize=8)
    _save(figure, file)


def _line(axes: Any, found: dict[str, Any] | None, style: str, colour: str, label: str) -> None:
    if found and "medians" in found:
        points = sorted((int(length), value) for length, value in found["medians"].items())
        axes.plot(*zip(*points, strict=True), style, color=colour, label=label, linewidth=1.2)


def plot_rows(results: dict[str, Any], file: Path) -> None:
    """Value over target, rates the other way round: what is left of 1 is met."""
    rows = [row for row in rows_of(results) if row["target"] is not None]
    names = [row["name"] for row in rows]
    shares = [
        row["target"] / row["value"]
        if row["name"].endswith(_RATES)
        else row["value"] / row["target"]
        for row in rows
    ]
    colours = ["tab:green" if is_met(row) else "tab:red" for row in rows]
    figure, axes = plt.subplots(figsize=(8, 0.3 * len(rows) + 1))
    axes.barh(names, shares, color=colours)
    axes.axvline(1, color="black", linewidth=0.8)
    axes.invert_yaxis()
    axes.tick_params(labelsize=7)
    axes.set_xlabel("share of the target")
    _save(figure, file)


def _save(figure: Any, file: Path) -> None:
    figure.tight_layout()
    # Without a date, so that the same results give the same file.
    figure.savefig(file, metadata={"Date": None})
    plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--results", type=Path, default=HERE / "results" / "h200")
    parser.add_argument("--out", type=Path, default=HERE / "plots")
    options = parser.parse_args()
    results = read(options.results)
    options.out.mkdir(exist_ok=True)
    plt.rcParams["svg.hashsalt"] = "system1"
    if "openjev_27b" in results:
        plot_lengths(results["openjev_27b"], options.out / "openjev_27b.svg")
    if any(row["target"] is not None for row in rows_of(results)):
        plot_rows(results, options.out / "rows.svg")
    print(table(results))


if __name__ == "__main__":
    main()
