"""The shipped model's answers, as `training/golden.py` recorded them."""

import json
from pathlib import Path

import pytest

from system1_core import Question

CASES = json.loads((Path(__file__).parent / "fixtures" / "golden.json").read_text(encoding="utf-8"))
TOLERANCE = 1e-4  # float32 sums differ between processors


def near(expected):
    """`pytest.approx` for the numbers of a nested answer."""
    if isinstance(expected, dict):
        return {key: near(value) for key, value in expected.items()}
    return pytest.approx(expected, abs=TOLERANCE) if isinstance(expected, float) else expected


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_answers_are_the_recorded_ones(mini, case):
    questions = case["request"]["questions"]
    result = mini.result(case["request"]["state"], questions)
    for (id, fields), answer in zip(questions.items(), result.answers, strict=True):
        assert answer.as_json(Question(id=id, **fields)) == near(case["answers"][id])


def test_demo_questions_are_answered_sensibly():
    refund, picture = CASES[0]["answers"], CASES[1]["answers"]
    assert refund["refund"]["noul"] > 0.5 > picture["refund"]["noul"]
    assert refund["team"]["choice"] == "billing"
    assert picture["team"]["choice"] == "account"
    assert refund["urgency"]["score"] / 3 > picture["urgency"]["score"] / 2
