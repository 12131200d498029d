"""Figures of the shipped int8 model, through the runtime's own code: `python shipped.py`."""

import argparse
import json
from pathlib import Path

import evaluate
import numpy as np
from families import load_families, load_flags
from tokenizers import Tokenizer

from models_mini.checkpoint import open_checkpoint
from models_mini.executor import MiniExecutor
from models_mini.head import Head
from models_mini.tokens import WindowedTokenizer
from system1_core import Prompt


def int8_logits(checkpoint, items):
    """Logits of every item, as a server would compute them."""
    tokenizer = Tokenizer.from_str(checkpoint.read("tokenizer.json").decode())
    windows = WindowedTokenizer(tokenizer, checkpoint.config["max_positions"])
    head = Head.from_bytes(checkpoint.read("head.npz"))
    texts = list(dict.fromkeys(text for item in items for text in (item.state, *item.candidates)))
    prompts = [Prompt(windows.windows(windows.ids(text))[0]) for text in texts]
    vectors = MiniExecutor(checkpoint).execute(prompts)
    place = {text: v / np.linalg.norm(v) for text, v in zip(texts, vectors, strict=True)}
    return [
        head.logits(item.type, place[item.state], np.stack([place[t] for t in item.candidates]))
        for item in items
    ]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, help="an exported model (default: the shipped one)")
    checkpoint = open_checkpoint(parser.parse_args().folder)
    items = evaluate.development_items(load_families(), load_flags(), seed=0)
    logits = int8_logits(checkpoint, items)
    found, _ = evaluate.report(items, logits, checkpoint.config["temperatures"])
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
