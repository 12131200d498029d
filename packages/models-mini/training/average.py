"""The mean of several runs' tensors, judged and written like a run: `python average.py OUT RUN...`.

Runs must differ in their seed alone.
"""

import argparse
import json
from pathlib import Path

import torch
from safetensors.torch import load_file
from train import Settings, finish, make_network, prepare_torch, summary

PARTS = ("body-0", "body-1", "head")


def mean_tensors(runs):
    """Tensors by name, float32; the encoder's and the head's apart."""
    loaded = [[load_file(run / f"{part}.safetensors") for part in PARTS] for run in runs]
    whole = [({**first, **second}, head) for first, second, head in loaded]
    return [
        {name: torch.stack([one[side][name].float() for one in whole]).mean(0) for name in names}
        for side, names in enumerate(whole[0])
    ]


def average(runs, out):
    """Writes the mean of the runs; returns its report."""
    out.mkdir(parents=True, exist_ok=True)
    reports = [json.loads((run / "report.json").read_text(encoding="utf-8")) for run in runs]
    chosen = reports[0]["settings"] | {"name": f"mean of {len(runs)} seeds"}
    if len({json.dumps({**r["settings"], "seed": 0, "name": ""}) for r in reports}) > 1:
        raise SystemExit("runs differ in more than their seed")
    settings = Settings(**chosen)
    device = prepare_torch(settings)
    network = make_network(settings, device)
    encoder, head = mean_tensors(runs)
    network.encoder.load_state_dict(encoder)
    network.head.load_state_dict(head)
    facts = {"steps": reports[0]["steps"], "train_s": sum(r["train_s"] for r in reports)}
    return finish(network, settings, out, device, facts)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("runs", type=Path, nargs="+")
    args = parser.parse_args()
    print(summary(average(args.runs, args.out)))


if __name__ == "__main__":
    main()
