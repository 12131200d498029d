"""Candidates share what they begin with, and nothing around one moves its score."""

import random

import pytest
import torch
from conftest import CASES, question

from models_qwen3_5.backbone import Planner
from models_qwen3_5.sequence import make_key
from system1_core.request import Request

STATE = "Step by step the operator moved the valve and noted the pressure. " * 6
CRITERIA = {f"valve {index}": "moved " * (index % 4) or None for index in range(12)}
TOLERANCE = 1e-4


@pytest.fixture
def copied(monkeypatch):
    """How often something was copied to the host."""
    counts = []
    for name in ("tolist", "cpu", "item", "__bool__"):
        real = getattr(torch.Tensor, name)

        def counted(self, *given, real=real, name=name):
            counts.append(name)
            return real(self, *given)

        monkeypatch.setattr(torch.Tensor, name, counted)
    return counts


def prompts_of(served, *questions, state=STATE):
    return served.processor.prepare(Request(state=state, questions=questions)).prompts


@pytest.fixture(scope="module")
def prompts(package):
    return [
        *prompts_of(package, question("choice", criteria=CRITERIA)),
        *prompts_of(package, question(), question("score", criteria=["a", "b c d", ""])),
        *prompts_of(package, question(), state="Short."),
    ]


@pytest.fixture(scope="module")
def alone(package, prompts):
    return [package.executor.execute([prompt])[0] for prompt in prompts]


def test_a_batch_gives_what_each_candidate_gives_alone(package, prompts, alone):
    assert package.executor.execute(prompts) == pytest.approx(alone, abs=TOLERANCE)


def test_any_order_and_any_neighbours_give_the_same(package, prompts, alone):
    order = list(range(len(prompts)))
    for seed in range(3):
        random.Random(seed).shuffle(order)
        found = package.executor.execute([prompts[index] for index in order])
        assert found == pytest.approx([alone[index] for index in order], abs=TOLERANCE)


@pytest.mark.parametrize("min_saved", [1, 8, 10_000])
def test_cuts_at_any_place_give_the_same(package, prompts, alone, monkeypatch, min_saved):
    monkeypatch.setattr(package.executor.backbone, "planner", Planner(min_saved=min_saved))
    assert package.executor.execute(prompts) == pytest.approx(alone, abs=TOLERANCE)


def test_the_state_and_the_question_are_run_once(package):
    prompts = prompts_of(package, question("choice", criteria=CRITERIA))
    plan = package.executor.backbone.planner.plan(prompts)
    whole = sum(len(prompt.token_ids) for prompt in prompts)
    assert plan.num_tokens < whole / 3
    shared = len(prompts[0].token_ids) - plan.num_tokens / len(prompts)
    assert shared > 0


def test_the_cost_of_a_batch_is_about_what_it_runs(package):
    prompts = prompts_of(package, question("choice", criteria=CRITERIA), question())
    costs = [package.executor.cost(prompts[:at], prompt) for at, prompt in enumerate(prompts)]
    planned = package.executor.backbone.planner.plan(prompts).num_tokens
    assert sum(costs) == pytest.approx(planned, rel=0.3)


def test_the_order_of_options_changes_no_score(package):
    forwards = prompts_of(package, question("choice", criteria=CRITERIA))
    backwards = prompts_of(package, question("choice", criteria=dict(reversed(CRITERIA.items()))))
    found = package.executor.execute(backwards)
    assert package.executor.execute(forwards) == pytest.approx(found[::-1], abs=TOLERANCE)


def test_a_mixed_batch_of_recorded_cases_gives_their_answers(package):
    chosen = [case for case in CASES if sum(map(len, _ids(case))) < 2_000]
    prompts = [
        prompt for case in chosen for prompt in package.processor.prepare(_request(case)).prompts
    ]
    expected = [score for case in chosen for each in case["questions"] for score in each["scores"]]
    with torch.inference_mode():
        assert package.executor.execute(prompts) == pytest.approx(expected, abs=1e-3)


def _ids(case):
    return [ids for each in case["questions"] for ids in each["token_ids"]]


def _request(case):
    from models_openjev.reference import ReferenceDialect
    from system1_core.wire.dialect import Body, RequestLimits

    return ReferenceDialect().parse(Body(json=case["request"]), RequestLimits())


def test_scores_leave_the_device_in_one_copy(package, prompts, alone, copied):
    with torch.inference_mode():
        readouts = package.executor.backbone.read(prompts)
        del copied[:]
        scores = package.executor.read_out(prompts, readouts)
    assert copied == ["cpu"]
    assert scores == pytest.approx(alone, abs=TOLERANCE)


def test_a_prompts_key_is_that_of_its_tokens(prompts):
    for prompt in prompts:
        assert prompt.key.tolist() == make_key(prompt.token_ids).tolist()
