"""Figures on development families, with intervals over families, and temperatures."""

import random

import numpy as np
from calibration import calibration_error, curve
from sample import Sampler

from models_mini.temperature import temperature_key

FORMS = 2  # forms in which each development sentence is asked
DERIVED = 1  # yes/no questions about an option, for each sentence of a choice or scale
FLAG_FORMS = 12
TEMPERATURES = np.geomspace(0.2, 5.0, 120)
DRAWS = 1000


def development_items(families, flags, seed=0):
    """Every sentence of the development families in `FORMS` forms, derived questions, and flags.

    The same items for one seed.
    """
    families = [family for family in families if family.development]
    flags = [flag for flag in flags if flag.development]
    sampler = Sampler(families, flags, random.Random(seed))
    items = []
    for family in families:
        for target, option in enumerate(family.options):
            for sentence in option.sentences:
                items += [sampler.item(family, target, sentence) for _ in range(FORMS)]
                if family.type != "noul":
                    items += [sampler.derived(family, target, sentence) for _ in range(DERIVED)]
    return items + [sampler.flag(flag) for flag in flags for _ in range(FLAG_FORMS)]


def paraphrases(families, count=200, seed=0):
    """Pairs of items that differ in the wording of the question alone, evenly from all types."""
    rng, pairs = random.Random(seed), []
    families = [family for family in families if family.development]
    by_type = [[f for f in families if f.type == t] for t in ("choice", "score", "noul")]
    while len(pairs) < count:
        family = rng.choice(by_type[len(pairs) % len(by_type)])
        one, other = rng.sample(family.questions, 2)
        target = rng.randrange(len(family.options))
        sentence = rng.choice(family.options[target].sentences)
        form, made = rng.random(), []
        for question in (one, other):
            asked = _only(family, question)
            sampler = Sampler([asked, *families], [], random.Random(form))
            made.append(sampler.item(asked, target, sentence))
        if _says_question(made[0], one) and _says_question(made[1], other):
            pairs.append(tuple(made))
    return pairs


def _only(family, question):
    fields = {name: getattr(family, name) for name in type(family).__slots__}
    return type(family)(**fields | {"questions": (question,)})


def _says_question(item, question):
    return item.group in ("choice", "score", "contrast") and question in item.candidates[0]


def agreement(pairs, logits):
    """Share of pairs whose answers agree, with an interval; `logits` in the order of the pairs."""
    same = np.array([float(np.argmax(one) == np.argmax(two)) for one, two in logits])
    return {"pairs": len(pairs), **_share(same, list(range(len(same))))}


def fit_temperatures(items, logits):
    """The temperature of least log loss for each `temperature_key`.

    A key without questions of its own takes what fits all of its type, or 1.
    """
    rows = {}
    for item, row in zip(items, logits, strict=True):
        rows.setdefault(temperature_key(item.type, len(row)), []).append((item.target, row))
    found = {}
    for key in ("choice.few", "choice.many", "score.few", "score.many", "noul"):
        same_type = [
            row for other in rows if other.startswith(key.split(".")[0]) for row in rows[other]
        ]
        chosen = rows.get(key, same_type)
        found[key] = _fit(chosen) if chosen else 1.0
    return found


def _fit(rows):
    losses = [-np.mean([log_softmax(row / t)[k] for k, row in rows]) for t in TEMPERATURES]
    return float(TEMPERATURES[int(np.argmin(losses))])


GROUPS = {
    "choice": lambda item: item.type == "choice",
    "score": lambda item: item.type == "score",
    "noul": lambda item: item.type == "noul",
    "noul contrast": lambda item: item.type == "noul" and item.group == "contrast",
    "noul derived": lambda item: item.group == "derived",
    "noul off topic": lambda item: item.group == "off topic",
    "noul boolean": lambda item: item.group == "flag",
    "all": lambda item: True,
}


MERITS = ("choice", "score", "noul", "noul contrast")


def merit(items, logits):
    """What settings are chosen by: the mean of the shares that the model card leads with."""
    chosen = np.array([int(np.argmax(row)) for row in logits])
    targets = np.array([item.target for item in items])
    shares = []
    for name in MERITS:
        here = np.array([GROUPS[name](item) for item in items])
        apart = abs(chosen - targets)[here]
        shares += [np.mean(apart == 0)] + [np.mean(apart <= 1)] * (name == "score")
    return float(np.mean(shares))


def report(items, logits, temperatures=None):
    """Figures by group, and temperatures: fitted here unless given.

    Fitted ones are fitted across: each half of the families is judged with what the other half
    gave, so that calibration figures are not of the questions that made them.
    """
    fitted = temperatures is None
    chances = _cross_fitted(items, logits) if fitted else _chances(items, logits, temperatures)
    found = {}
    for name, belongs in GROUPS.items():
        chosen = [pair for pair in zip(items, chances, strict=True) if belongs(pair[0])]
        if chosen:
            found[name] = figures(chosen)
    return found, fit_temperatures(items, logits) if fitted else temperatures


def _chances(items, logits, temperatures):
    return [
        np.exp(log_softmax(row / temperatures[temperature_key(item.type, len(row))]))
        for item, row in zip(items, logits, strict=True)
    ]


def _cross_fitted(items, logits):
    half = {name: i % 2 for i, name in enumerate(dict.fromkeys((t.type, t.family) for t in items))}
    sides = [half[item.type, item.family] for item in items]
    everywhere, chances = fit_temperatures(items, logits), [None] * len(items)
    for side in (0, 1):
        others = [i for i, s in enumerate(sides) if s != side]
        fit = fit_temperatures([items[i] for i in others], [logits[i] for i in others])
        mine = [i for i, s in enumerate(sides) if s == side]
        found = _chances([items[i] for i in mine], [logits[i] for i in mine], everywhere | fit)
        for i, row in zip(mine, found, strict=True):
            chances[i] = row
    return chances


def figures(rows):
    """Figures of pairs of item and chances; intervals are a bootstrap over families."""
    items, chances = zip(*rows, strict=True)
    targets = np.array([item.target for item in items])
    chosen = np.array([int(p.argmax()) for p in chances])
    top = np.array([p.max() for p in chances])
    right = (chosen == targets).astype(float)
    clusters = [(item.type, item.family) for item in items]
    loss = [-np.log(max(p[k], 1e-12)) for p, k in zip(chances, targets, strict=True)]
    found = {
        **_share(right, clusters),
        "log_loss": _rounded(np.mean(loss)),
        "calibration_error": _rounded(calibration_error(top, right)),
        "calibration_error_95": _calibration_interval(top, right, clusters),
        "curve": [[_rounded(v) for v in point] for point in curve(top, right)],
        "questions": len(items),
        "sentences": len({(item.family, item.sentence) for item in items}),
        "families": len(set(clusters)),
        "chance": _rounded(np.mean([1 / len(p) for p in chances])),
    }
    if all(item.type == "score" for item in items):
        found["within_one"] = _share((abs(chosen - targets) <= 1).astype(float), clusters)
        expected = np.array([p @ np.arange(len(p)) for p in chances])
        found["mean_level_distance"] = _rounded(np.abs(expected - targets).mean())
    if all(item.group == "contrast" for item in items):
        sets = {}
        for cluster, value in zip(clusters, right, strict=True):
            sets.setdefault(cluster, []).append(value)
        solved = np.array([float(np.mean(values) >= 0.75) for values in sets.values()])
        found["sets_three_quarters_right"] = _rounded(solved.mean())
    return found


def _share(right, clusters):
    return {"accuracy": _rounded(right.mean()), "accuracy_95": interval(right, clusters)}


def interval(values, clusters):
    """The 95 % interval of a mean, by bootstrap over clusters."""
    low, high = np.quantile(_resampled(values, clusters), (0.025, 0.975))
    return [_rounded(low), _rounded(high)]


def _resampled(values, clusters):
    groups = _grouped(clusters)
    sums = np.array([values[members].sum() for members in groups])
    sizes = np.array([len(members) for members in groups])
    picks = np.random.default_rng(0).integers(0, len(groups), (DRAWS, len(groups)))
    return sums[picks].sum(1) / sizes[picks].sum(1)


def _calibration_interval(top, right, clusters, draws=100):
    groups, rng, found = _grouped(clusters), np.random.default_rng(0), []
    for _ in range(draws):
        picks = np.concatenate([groups[i] for i in rng.integers(0, len(groups), len(groups))])
        found.append(calibration_error(top[picks], right[picks]))
    return [_rounded(value) for value in np.quantile(found, (0.025, 0.975))]


def _grouped(clusters):
    groups = {}
    for index, cluster in enumerate(clusters):
        groups.setdefault(cluster, []).append(index)
    return [np.array(members) for members in groups.values()]


def log_softmax(row):
    """In float64."""
    row = np.asarray(row, np.float64) - np.max(row)
    return row - np.log(np.exp(row).sum())


def _rounded(value):
    return round(float(value), 4)
