"""Trains several settings side by side on one GPU: `python explore.py settings/explore.json OUT`.

The file holds a JSON array of settings (see `train.Settings`); each is a process of its own. Writes
`explore.json` with every report, `log.txt`, and the tensors of the best one.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).parent


def merit(report):
    """Of the blend that a run kept."""
    return max(report["blends"].values())


def start(settings, folder):
    """A training process; its output goes to a file."""
    folder.mkdir(parents=True)
    (folder / "settings.json").write_text(json.dumps(settings), encoding="utf-8")
    command = [sys.executable, "train.py", "--settings", folder / "settings.json", "--out", folder]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    with (folder / "output.txt").open("w") as output:
        return subprocess.Popen(
            list(map(str, command)), cwd=HERE, env=environment, stdout=output, stderr=output
        )


def wait(running, seconds):
    """Until all have ended or the time is over; then the rest is stopped."""
    deadline = time.monotonic() + seconds
    for process in running:
        try:
            process.wait(max(0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def collect(folders, out):
    """Write what came of them; returns the reports, best first."""
    logs = [f"== {folder.name}\n{_text(folder / 'output.txt')}" for folder in folders]
    (out / "log.txt").write_text("\n".join(logs), encoding="utf-8")
    reports = []
    for folder in folders:
        path = folder / "report.json"
        if path.exists():
            reports.append((json.loads(path.read_text(encoding="utf-8")), folder))
    if not reports:
        return []
    reports.sort(key=lambda pair: -merit(pair[0]))
    found = [{"merit": merit(report), **report} for report, _ in reports]
    (out / "explore.json").write_text(json.dumps(found) + "\n", encoding="utf-8")
    for path in reports[0][1].glob("*.safetensors"):
        shutil.copy(path, out / path.name)
    (out / "report.json").write_text(json.dumps(reports[0][0], indent=1) + "\n", encoding="utf-8")
    return found


def _text(path):
    return path.read_text(encoding="utf-8") if path.exists() else ""


def average(folders, folder):
    """The mean of all runs that came to an end, as a run of its own."""
    ended = [one for one in folders if (one / "report.json").exists()]
    folder.mkdir()
    with (folder / "output.txt").open("w") as output:
        command = [sys.executable, "average.py", folder, *ended]
        subprocess.run(list(map(str, command)), cwd=HERE, stdout=output, stderr=output, check=False)
    return folder


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("settings", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seconds", type=float, default=560, help="the whole time")
    parser.add_argument("--train-seconds", type=float, help="of each run, whatever it says itself")
    parser.add_argument("--average", action="store_true", help="judge the mean of the runs too")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as work:
        running, folders = [], []
        for settings in json.loads(args.settings.read_text(encoding="utf-8")):
            if args.train_seconds:
                settings["seconds"] = args.train_seconds
            folders.append(Path(work) / settings["name"])
            running.append(start(settings, folders[-1]))
        wait(running, args.seconds)
        if args.average:
            folders.append(average(folders, Path(work) / "mean"))
        for report in collect(folders, args.out):
            settings, figures = report["settings"], report["figures"]
            row = {name: one["accuracy"] for name, one in figures.items()}
            row["score within one"] = figures["score"]["within_one"]["accuracy"]
            row["ece"] = figures["all"]["calibration_error"]
            row["paraphrases"] = report["paraphrases"]["accuracy"]
            print(settings["name"], f"merit {report['merit']}", report["steps"], json.dumps(row))
    for line in (args.out / "log.txt").read_text().splitlines():
        if "Error" in line:
            print(line)


if __name__ == "__main__":
    main()
