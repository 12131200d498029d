"""How probable the base model finds an option's own text: six features of each option."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

NUM_FEATURES = 6
# Stands for the log-probability of an option without text among options with text.
_NO_TEXT = -10_000.0


def lm_features(logprobs: Sequence[Sequence[float]]) -> np.ndarray:
    """Features [K, 6] float32 of the options of one question.

    Each entry of `logprobs` belongs to one option, empty for one without text: first the
    log-probability of its first token straight after the question, then that of each token
    behind the opening marker.
    """
    totals = [math.fsum(values[1:]) for values in logprobs]
    contested = [
        total if values else _NO_TEXT for total, values in zip(totals, logprobs, strict=True)
    ]
    top = max(contested)
    log_sum = top + math.log(math.fsum(math.exp(total - top) for total in contested))
    rows = []
    for total, values, rival in zip(totals, logprobs, contested, strict=True):
        count = max(0, len(values) - 1)
        rows.append(
            (
                total / 10,
                total / count if count else 0.0,
                count / 10,
                rival - log_sum,
                values[0] if values else 0.0,
                float(bool(values)),
            )
        )
    return np.array(rows, dtype=np.float32)
