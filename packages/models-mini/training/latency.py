"""Times a warm request in this process, without HTTP: `python latency.py --threads 2`.

A state of 60 words that differs each time, three questions with 6 and 5 options and a noul.
"""

import argparse
import json
import time
from pathlib import Path

import numpy as np
from golden import answer

from models_mini.checkpoint import open_checkpoint
from models_mini.executor import MiniExecutor
from models_mini.processor import MiniProcessor

STATE = (
    "I ordered a blue kettle number {} from your shop three weeks ago and it still has not arrived "
    "although the tracking page says that it was delivered to my neighbour, who knows nothing "
    "about it, so please tell me where it is or send a new one before Friday because it is a "
    "present for my mother who visits us at the weekend."
)
QUESTIONS = {
    "team": {
        "type": "choice",
        "instructions": "Which team should handle this?",
        "criteria": {
            "billing": "charges, refunds and invoices",
            "technical": "errors and crashes",
            "sales": "prices and offers",
            "account": "logins and profile",
            "shipping": "delivery of parcels",
            "other": None,
        },
    },
    "urgency": {
        "type": "score",
        "instructions": "How urgent is this?",
        "criteria": ["can wait for weeks", "this week", "today", "within the hour", "immediately"],
    },
    "refund": {"type": "noul", "instructions": "Does the customer ask for a refund?"},
}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--requests", type=int, default=100)
    parser.add_argument("--folder", type=Path, help="an exported model (default: the shipped one)")
    args = parser.parse_args()
    checkpoint = open_checkpoint(args.folder)
    processor = MiniProcessor(checkpoint, 2**25)
    executor = MiniExecutor(checkpoint, args.threads)
    times = []
    for index in range(args.requests + 1):
        started = time.perf_counter()
        answer(processor, executor, {"state": STATE.format(index), "questions": QUESTIONS})
        times.append((time.perf_counter() - started) * 1e3)
    cold, warm = times[0], np.array(times[1:])
    report = {"threads": executor.threads, "words": len(STATE.split()), "cold_ms": round(cold, 1)}
    report["warm_median_ms"] = round(float(np.median(warm)), 2)
    report["warm_p90_ms"] = round(float(np.quantile(warm, 0.9)), 2)
    report["warm_min_ms"] = round(float(warm.min()), 2)
    print(json.dumps(report))


if __name__ == "__main__":
    main()
