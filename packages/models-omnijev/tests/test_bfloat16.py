"""bfloat16 on the CPU: no further from float32 than the contract states for the original."""

from statistics import median, quantiles

import pytest
from conftest import CASES, Served, body_of, make_load

# Worst difference of a probability in each of the original's 140 answers, in bfloat16 and float32.
MEDIAN, P90, MAX = 0.019, 0.074, 0.188
MAX_FLIPS = 2


def probabilities(answer):
    if "noul" in answer:
        return [answer["noul"]]
    return [*answer["probabilities"].values(), answer.get("abstain", 0.0)]


@pytest.fixture(scope="module")
def pairs():
    """Answers in bfloat16 and the recorded ones, for every question."""
    served = Served(make_load(dtype="bfloat16"))
    found = []
    for case in CASES.values():
        answers = served.ask(body_of(case))["answers"]
        found += [(answers[key], case["answers"][key]) for key in answers]
    return found


def test_probabilities_drift_no_further_than_the_originals(pairs):
    worst = [
        max(abs(a - b) for a, b in zip(probabilities(f), probabilities(e), strict=True))
        for f, e in pairs
    ]
    assert median(worst) <= MEDIAN
    assert quantiles(worst, n=10)[-1] <= P90
    assert max(worst) <= MAX


def test_decisions_flip_no_more_often_than_the_originals(pairs):
    flips = [f for f, e in pairs for key in ("choice", "score") if f.get(key) != e.get(key)]
    assert len(flips) <= MAX_FLIPS
