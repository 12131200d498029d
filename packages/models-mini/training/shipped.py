"""Figures of an exported model, through the runtime's own code: `python shipped.py`.

With `--text FOLDER` the families of that folder are asked instead, all of them: the blind set.
"""

import argparse
import dataclasses
import json
from pathlib import Path

import evaluate
import numpy as np
from families import FOLDER, load_families, load_flags

from models_mini.checkpoint import open_checkpoint
from models_mini.executor import MiniExecutor
from models_mini.processor import MiniProcessor
from system1_core import Question, Request

BATCH = 32


class Shipped:
    """Answers items as a server would, from the files of an exported folder."""

    def __init__(self, folder=None, threads=0):
        checkpoint = open_checkpoint(folder)
        self.processor = MiniProcessor(checkpoint, 2**26)
        self.executor = MiniExecutor(checkpoint, threads)

    def log_chances(self, items):
        """The log of each item's probabilities: logits over the temperature, up to a constant."""
        found = []
        for start in range(0, len(items), BATCH):
            found += self._batch(items[start : start + BATCH])
        return found

    def _batch(self, items):
        prepared = [self.processor.prepare(_request(item)) for item in items]
        prompts = [prompt for one in prepared for prompt in one.prompts]
        outputs = iter(self.executor.execute(prompts))
        results = [
            self.processor.finish(one.context, [next(outputs) for _ in one.prompts])
            for one in prepared
        ]
        return [np.log(np.maximum(_chances(one.answers[0]), 1e-12)) for one in results]


def _request(item):
    return Request(state=item.entry, questions=(Question(id="q", **item.question),))


def _chances(answer):
    if hasattr(answer, "probability"):
        return np.array([1 - answer.probability, answer.probability])
    found = answer.probabilities
    return np.array(list(found.values() if hasattr(found, "values") else found))


def read_text(folder):
    """Families and flags to be judged on: development ones, or all of a folder of their own."""
    families, flags = load_families(folder), load_flags(folder)
    if folder == FOLDER:
        return families, flags
    make = dataclasses.replace
    return [make(f, development=True) for f in families], [make(f, development=True) for f in flags]


def judge(answer, families, flags):
    """Figures and paraphrase agreement of `answer`, which gives log chances of items."""
    items = evaluate.development_items(families, flags)
    ones = dict.fromkeys(("choice.few", "choice.many", "score.few", "score.many", "noul"), 1.0)
    figures, _ = evaluate.report(items, answer(items), ones)
    pairs = evaluate.paraphrases(families)
    found = answer([item for pair in pairs for item in pair])
    agreement = evaluate.agreement(pairs, list(zip(found[::2], found[1::2], strict=True)))
    return {"figures": figures, "paraphrases": agreement}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, help="an exported model (default: the shipped one)")
    parser.add_argument("--text", type=Path, default=FOLDER)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    found = judge(Shipped(args.folder).log_chances, *read_text(args.text))
    text = json.dumps(found, indent=1)
    if args.out:
        args.out.write_text(text + "\n", encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
