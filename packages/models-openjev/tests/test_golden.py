"""Every recorded case: prompts and token ids exact, scores and answers of both layouts."""

import pytest
from conftest import CASES, NAMES, assert_close, golden

from models_openjev.reference import ReferenceDialect
from models_openjev.text import candidate_texts, head_text, question_text
from system1_core.answers import softmax
from system1_core.errors import InvalidRequest
from system1_core.wire.dialect import Body, RequestLimits
from system1_core.wire.strict_json import loads

SCORES = 1e-3
cases = pytest.mark.parametrize("case", CASES, ids=NAMES)


def parsed(case):
    return ReferenceDialect().parse(Body(json=case["request"]), RequestLimits())


@cases
def test_prompts_are_the_originals_letter_by_letter(case):
    request = parsed(case)
    for question, expected in zip(request.questions, case["questions"], strict=True):
        start = head_text(request.state) + question_text(question)
        assert [start + ending for ending in candidate_texts(question)] == expected["prompts"]


@cases
def test_token_ids_are_exact(package, merged, case):
    expected = [ids for each in case["questions"] for ids in each["token_ids"]]
    for served in (package, merged):
        prompts = served.processor.prepare(parsed(case)).prompts
        assert [list(prompt.token_ids) for prompt in prompts] == expected


@pytest.mark.parametrize(
    ("layout", "key"), [("package", "scores"), ("merged", "scores_merged_bf16_weights")]
)
@cases
def test_scores_are_the_originals(request, case, layout, key):
    served = request.getfixturevalue(layout)
    expected = [score for each in case["questions"] for score in each[key]]
    assert served.scores(case) == pytest.approx(expected, abs=SCORES)


@cases
def test_final_hidden_vectors_are_the_originals(package, case):
    prompts = package.processor.prepare(parsed(case)).prompts
    firsts, at = [], 0
    for each in case["questions"]:
        firsts.append(prompts[at])
        at += len(each["scores"])
    readouts = package.executor.backbone.forward(firsts)
    for readout, each in zip(readouts, case["questions"], strict=True):
        expected = each["last_hidden_first_candidate"]
        assert readout.hidden[0].tolist() == pytest.approx(expected, abs=SCORES)


@cases
def test_answers_of_base_and_package(package, case):
    found, expected = package.recorded(case), case["response"]
    assert_close(found["answers"], expected["answers"])
    assert found["usage"] == expected["usage"]
    assert found["model"] == expected["model"]
    for name in ("temperature", "candidate_sequences", "method", "prefix_cache"):
        assert found["metadata"][name] == expected["metadata"][name]


@cases
def test_answers_of_the_merged_export(merged, case):
    found = merged.recorded(case)
    assert_close(found["answers"], case["answers_merged_bf16_weights"])


@cases
def test_logits_and_temperature_give_the_answer(case):
    for each in case["questions"]:
        answer = case["response"]["answers"][each["id"]]
        chances = softmax(each["logits"], case["response"]["metadata"]["temperature"])
        expected = [answer["noul"]] if each["type"] == "noul" else answer["probabilities"].values()
        assert chances[-len(expected) :] == pytest.approx(list(expected), abs=1e-12)


# Which models there are is known to the server only: see test_http.
REFUSED = [case for case in golden("errors.json") if case["name"] != "unknown-model"]


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case["name"])
def test_what_the_original_refuses_is_refused(package, case):
    with pytest.raises(InvalidRequest):
        package.reference(loads(case["body"].encode(), 64))
