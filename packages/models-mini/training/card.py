"""Writes the figures into MODEL_CARD.md, between its markers, and the plot: `python card.py`.

Reads what the other scripts left in `figures/`: `shipped.json` (shipped.py), `sparrow.json`
(compare.py), `explore.json` (explore.py, kept short by `--keep`; `explore-first.json` is of an
earlier text), and, once, `blind.json`.
"""

import argparse
import json
from pathlib import Path

from plot import calibration_svg

HERE = Path(__file__).parent
CARD, PLOT = HERE.parent / "MODEL_CARD.md", HERE.parent / "calibration.svg"
FIGURES = HERE / "figures"
BEGIN, END = "<!-- figures: written by training/card.py -->", "<!-- end of figures -->"
NAMES = {
    "choice": "choice",
    "score": "score, exact level",
    "noul": "noul, all",
    "noul contrast": "noul, contrast sets",
    "noul derived": "noul, about an option",
    "noul off topic": "noul, off topic",
    "noul boolean": "noul, a boolean of an object",
    "all": "all",
}

ATTEMPTS = {
    "explore.json": "What was tried",
    "explore-first.json": "What was tried before, on 27 scales in place of 43",
}


def share(found):
    """A share with its interval: 0.812 (0.780 to 0.841)."""
    low, high = found["accuracy_95"]
    return f"{found['accuracy']:.3f} ({low:.3f} to {high:.3f})"


def table(head, rows):
    """A table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)


def figures_table(found):
    """Every group: how many were asked, accuracy, chance, log loss, calibration."""
    rows = []
    for name, one in found["figures"].items():
        low, high = one["calibration_error_95"]
        error = f"{one['calibration_error']:.3f} ({low:.3f} to {high:.3f})"
        counts = [one["families"], one["questions"]]
        last = [f"{one['chance']:.3f}", f"{one['log_loss']:.3f}", error]
        rows.append([NAMES[name], *counts, share(one), *last])
        if name == "score":
            rows.append(["score, within one level", *counts, share(one["within_one"]), "", "", ""])
    head = ["Questions", "Families", "Asked", "Right (95 %)", "By chance", "Log loss"]
    return table([*head, "Calibration error (95 %)"], rows)


def attempts_table(reports):
    """What was tried, best first."""
    rows = []
    for one in reports:
        settings, figures = one["settings"], one["figures"]
        ways = [settings[type] for type in ("choice", "score", "noul")]
        names = ("choice", "score", "noul", "noul contrast")
        values = [f"{figures[name]['accuracy']:.3f}" for name in names]
        values.insert(1, f"{figures['score']['within_one']['accuracy']:.3f}")
        rows.append([settings["name"], ", ".join(ways), one["steps"], *values])
    head = ["Run", "choice, score, noul read the state", "Steps", "choice", "score within one"]
    return table([*head, "score exact", "noul", "contrast sets"], rows)


def margins_table(found):
    """mini and another model on the same items."""
    rows = [
        [
            NAMES[name],
            one["questions"],
            f"{one['mini']:.3f}",
            f"{one['other']:.3f}",
            "{:+.3f} to {:+.3f}".format(*one["margin_95"]),
        ]
        for name, one in found.items()
    ]
    return table(["Questions", "Asked", "mini", "other", "mini less other (95 %)"], rows)


def sections(folder):
    """The parts for which there are figures."""
    shipped = _read(folder / "shipped.json")
    yield "### Development families\n\n" + figures_table(shipped)
    pairs = shipped["paraphrases"]
    same = f"get the same answer in a share of {share(pairs)}"
    yield f"Paraphrases: {pairs['pairs']} pairs of wordings of one question {same}."
    yield "![Chance given against share right, bins of equal mass](calibration.svg)"
    if (folder / "blind.json").exists():
        yield "### Blind set\n\n" + figures_table(_read(folder / "blind.json"))
    if (folder / "sparrow.json").exists():
        title = "### Beside sparrow-decider 0.2.0, the same questions\n\n"
        yield title + margins_table(_read(folder / "sparrow.json"))
    for name, title in ATTEMPTS.items():
        if (folder / name).exists():
            yield f"### {title}\n\n" + attempts_table(_read(folder / name))


def keep_short(path, out):
    """Keep of `explore.json` what the card shows."""
    short = []
    for report in _read(path):
        figures = {
            name: {key: value for key, value in one.items() if key in ("accuracy", "within_one")}
            for name, one in report["figures"].items()
        }
        names = ("settings", "steps", "merit", "blend", "text_sha256")
        kept = {key: report[key] for key in names if key in report}
        short.append(kept | {"figures": figures})
    out.write_text(json.dumps(short, indent=1) + "\n", encoding="utf-8")


def write_card(folder=FIGURES, card=CARD, plot=PLOT):
    """Replace what stands between the markers."""
    before, rest = card.read_text(encoding="utf-8").split(BEGIN)
    after = rest.split(END)[1]
    middle = "\n\n".join(sections(folder))
    card.write_text(f"{before}{BEGIN}\n\n{middle}\n\n{END}{after}", encoding="utf-8")
    figures = _read(folder / "shipped.json")["figures"]
    curves = {name: figures[name]["curve"] for name in ("choice", "score", "noul")}
    plot.write_text(calibration_svg(curves), encoding="utf-8")


def _read(path):
    return json.loads(path.read_text(encoding="utf-8"))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keep", type=Path, help="an explore.json to keep in figures/ first")
    args = parser.parse_args()
    if args.keep:
        keep_short(args.keep, FIGURES / "explore.json")
    write_card()


if __name__ == "__main__":
    main()
