"""Calibration error over bins of equal mass, without the bias that small bins bring."""

import numpy as np

BINS = 10
DRAWS = 200


def calibration_error(top, right, seed=0):
    """Debiased expected calibration error.

    top, right [n]: the chance given to the chosen answer, and whether it was right. The error that
    a perfectly known curve of the same bins would show by chance is simulated and subtracted.
    """
    plain, bins = _error(top, right)
    rng = np.random.default_rng(seed)
    drawn = [
        size * np.abs(mean - rng.binomial(size, hits, DRAWS) / size) for size, mean, hits in bins
    ]
    shown = np.sum(drawn, axis=0) / len(top)
    return max(0.0, plain - max(0.0, float(np.mean(shown)) - plain))


def curve(top, right):
    """Mean chance, share right and size of each bin: the points of a calibration plot."""
    return [(float(mean), float(hits), size) for size, mean, hits in _error(top, right)[1]]


def _error(top, right):
    order = np.argsort(top, kind="stable")
    bins = [
        (len(part), top[part].mean(), right[part].mean())
        for part in np.array_split(order, min(BINS, len(order)))
    ]
    return sum(size * abs(mean - hits) for size, mean, hits in bins) / len(top), bins
