"""Figures on development families, with intervals, and one temperature for each type."""

import random

import numpy as np
from sample import Sampler

FORMS = 6  # forms in which each development sentence is asked
TEMPERATURES = np.geomspace(0.3, 4.0, 80)


def development_items(families, flags, seed):
    """Every sentence of the development families in `FORMS` forms, and the development flags.

    The same items for one seed.
    """
    families = [family for family in families if family.development]
    flags = [flag for flag in flags if flag.development]
    sampler = Sampler(families, flags, random.Random(seed))
    items = [
        sampler.item(family, target, sentence)
        for family in families
        for target, option in enumerate(family.options)
        for sentence in option.sentences
        for _ in range(FORMS)
    ]
    return items + [sampler.flag(flag) for flag in flags for _ in range(FORMS)]


def report(items, logits, temperatures=None):
    """Figures by group, and the temperature of each type (fitted here unless given).

    Questions about booleans are a group of their own, with noul's temperature.
    """
    rows = list(zip(items, logits, strict=True))
    if temperatures is None:
        temperatures = {
            type: fit_temperature([row for row in rows if row[0].type == type])
            for type in dict.fromkeys(item.type for item in items)
        }
    found = {}
    for group in dict.fromkeys(map(_group, items)):
        chosen = [row for row in rows if _group(row[0]) == group]
        found[group] = figures(chosen, temperatures[chosen[0][0].type])
    return found, temperatures


def _group(item):
    return item.type if item.sentence else "booleans"


def fit_temperature(rows):
    """The temperature of least negative log-likelihood for pairs of item and logits."""
    losses = [
        -np.mean([_log_softmax(row / t)[item.target] for item, row in rows]) for t in TEMPERATURES
    ]
    return float(TEMPERATURES[int(np.argmin(losses))])


def figures(rows, temperature):
    """Accuracy with a 95 % interval, log loss, calibration error; for a score the distance too."""
    items = [item for item, _ in rows]
    targets = [item.target for item in items]
    chances = [np.exp(_log_softmax(row / temperature)) for _, row in rows]
    right = np.array([float(p.argmax() == k) for p, k in zip(chances, targets, strict=True)])
    low, high = _interval(right, [(item.family, item.sentence) for item in items])
    report = {
        "accuracy": _rounded(right.mean()),
        "accuracy_95": [_rounded(low), _rounded(high)],
        "log_loss": _rounded(
            -np.mean([np.log(p[k]) for p, k in zip(chances, targets, strict=True)])
        ),
        "calibration_error": _rounded(_calibration_error(chances, right)),
        "sentences": len({(item.family, item.sentence) for item in items}),
        "families": len({item.family for item in items}),
        "questions": len(items),
        "chance": _rounded(np.mean([1 / len(p) for p in chances])),
    }
    if items[0].type == "score":
        distance = [abs(p @ np.arange(len(p)) - k) for p, k in zip(chances, targets, strict=True)]
        report["mean_level_distance"] = _rounded(np.mean(distance))
    return report


def _rounded(value):
    return round(float(value), 3)


def _interval(right, clusters, draws=2000):
    """Bootstrap over sentences, since the forms of one sentence are not independent."""
    groups = {}
    for value, cluster in zip(right, clusters, strict=True):
        groups.setdefault(cluster, []).append(value)
    sums = np.array([sum(values) for values in groups.values()])
    sizes = np.array([len(values) for values in groups.values()])
    picks = np.random.default_rng(0).integers(0, len(sums), (draws, len(sums)))
    return np.quantile(sums[picks].sum(1) / sizes[picks].sum(1), (0.025, 0.975))


def _calibration_error(chances, right, bins=10):
    """Expected calibration error of the chosen option over equal-width bins."""
    top = np.array([p.max() for p in chances])
    place = np.minimum((top * bins).astype(int), bins - 1)
    return sum(
        abs(top[place == b].mean() - right[place == b].mean()) * np.mean(place == b)
        for b in np.unique(place)
    )


def _log_softmax(row):
    row = row.astype(np.float64) - row.max()
    return row - np.log(np.exp(row).sum())
