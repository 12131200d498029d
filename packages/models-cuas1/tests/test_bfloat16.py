"""bfloat16 on the CPU: no further from float32 than the contract allows the reference's own."""

import pytest
from conftest import CASES, IMAGE_CASES, Served, body_of, load_of, named

# Twice the drift of the reference's own bfloat16 over its fixtures, plus 0.01.
DRIFT = {"text": 2 * 0.027 + 0.01, "multimodal": 2 * 0.019 + 0.01}
SURE = 0.05


@pytest.fixture(scope="module")
def half():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("models_qwen3_5.executor.set_cpu_threads", lambda: 1)
        yield Served(load_of(dtype="bfloat16"))


@pytest.mark.parametrize("case", CASES, ids=named)
def test_probabilities_stay_within_the_drift_and_sure_choices_stay(half, case):
    allowed = DRIFT["multimodal" if case in IMAGE_CASES else "text"]
    answers = half.ask_reference(body_of(case))["answers"]
    for entry in case["questions"]:
        exact = entry["probabilities"]
        found = list(answers[entry["question"]]["probabilities"].values())
        assert max(abs(a - b) for a, b in zip(found, exact, strict=True)) < allowed
        second, first = sorted(exact)[-2:] if len(exact) > 1 else (0.0, 1.0)
        if first - second >= SURE:
            assert found.index(max(found)) == exact.index(first)
