"""The same development items, asked of mini and of another package's model.

`python compare.py sparrow` needs `sparrow-decider`, whose model is inside its wheel. Both get the
requests as a client would send them.
"""

import argparse
import json
from pathlib import Path

import evaluate
import numpy as np
from families import FOLDER
from shipped import Shipped, read_text


def sparrow():
    """`sparrow-decider`'s default model, as a function of items; its own temperatures are kept."""
    from sparrow_decider import Decider

    decider = Decider.load()

    def log_chances(items):
        found = []
        for item in items:
            question = {key: value for key, value in item.question.items() if value is not None}
            chances = decider.probs(item.entry, question)[3]
            found.append(np.log(np.maximum(chances, 1e-12)))
        return found

    return log_chances


OTHERS = {"sparrow": sparrow}


def margins(items, mine, other):
    """mini's accuracy less the other's, by group, with a 95 % interval over families."""
    found = {}
    for name, belongs in evaluate.GROUPS.items():
        chosen = [i for i, item in enumerate(items) if belongs(item)]
        if not chosen:
            continue
        rows = [(items[i], int(mine[i].argmax()), int(other[i].argmax())) for i in chosen]
        gain = np.array([float(a == t.target) - float(b == t.target) for t, a, b in rows])
        clusters = [(item.type, item.family) for item, _, _ in rows]
        found[name] = {
            "mini": round(float(np.mean([a == t.target for t, a, _ in rows])), 4),
            "other": round(float(np.mean([b == t.target for t, _, b in rows])), 4),
            "margin_95": evaluate.interval(gain, clusters),
            "questions": len(rows),
        }
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("other", choices=OTHERS)
    parser.add_argument("--folder", type=Path, help="an exported model (default: the shipped one)")
    parser.add_argument("--text", type=Path, default=FOLDER)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    items = evaluate.development_items(*read_text(args.text))
    mine, other = (ask(items) for ask in (Shipped(args.folder).log_chances, OTHERS[args.other]()))
    text = json.dumps(margins(items, mine, other), indent=1)
    if args.out:
        args.out.write_text(text + "\n", encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
