"""Every recorded case of the original, without a server in between."""

import pytest
from conftest import CASES, SINGLE_CASES, assert_close, fixture

from models_laya.executor import LayaExecutor
from models_laya.model import LayaModel
from models_laya.questions import LayaRequest
from models_laya.tokens import LayaPrompt
from system1_core.answers import softmax
from system1_core.wire.dialect import Body, RequestLimits

BATCH_CASES = [case for case in CASES if "trace" not in case]
PART = {"checkpoint": "english", "checkpoint-multilingual": "multilingual"}


def _name(case):
    return case["name"]


def _prompts(served, case):
    request = served.reference.parse(Body(json=case["request"]), RequestLimits())
    return request, served.processor.prepare(request)


@pytest.mark.parametrize("case", SINGLE_CASES, ids=_name)
def test_token_ids_and_markers_are_exact(served, case):
    request, prepared = _prompts(served, case)
    assert isinstance(request, LayaRequest)
    traces = case["trace"]["questions"].values()
    for prompt, trace in zip(prepared.prompts, traces, strict=True):
        assert list(prompt.token_ids) == trace["input_ids"]
        assert list(prompt.markers) == trace["marker_positions"]
        assert prompt.type_id == trace["qtype"]
        assert prompt.batch_key == PART[case["checkpoint"]]


@pytest.mark.parametrize("case", SINGLE_CASES, ids=_name)
def test_logits_are_within_1e_3(served, case):
    _, prepared = _prompts(served, case)
    traces = list(case["trace"]["questions"].values())
    readings = served.executor.execute(prepared.prompts)
    for reading, trace in zip(readings, traces, strict=True):
        assert reading.logits == pytest.approx(trace["logits"], abs=1e-3)
        assert reading.act_logits == pytest.approx(trace["act_logits"], abs=1e-3)
        probabilities = softmax(reading.logits, trace["temperature"])
        assert probabilities == pytest.approx(trace["slot_probabilities"], abs=5e-4)


@pytest.mark.parametrize("case", SINGLE_CASES, ids=_name)
def test_response_is_the_recorded_one(served, case):
    assert_close(served.ask_reference(case["request"]), case["response"])


@pytest.mark.parametrize("case", SINGLE_CASES, ids=_name)
def test_strict_response_is_the_recorded_one(served, case):
    strict = served.with_options(strict=True)
    assert_close(strict.ask_reference(case["request"]), case["response_strict"])


@pytest.mark.parametrize("case", BATCH_CASES, ids=_name)
def test_batch_response_is_the_recorded_one(served, case):
    assert_close(served.ask_batch(case["request"]), case["response"])


def test_strict_server_answers_as_recorded(served):
    (exchange,) = fixture("server.json")["strict"]
    mixed = next(case for case in CASES if case["name"] == "mixed_5")
    strict = served.with_options(strict=True)
    assert_close(strict.ask_reference(mixed["request"]), exchange["response"])


def test_tournament_of_16_answers_as_recorded(served):
    exchange = fixture("server.json")["tournament_16"][0]
    expected = exchange["response"]
    found = served.with_options(tournament_group=16).ask_reference(exchange["request"])
    shown = expected["answers"]["i"].pop("probabilities")
    probabilities = found["answers"]["i"].pop("probabilities")
    assert len(probabilities) == shown["keys_total"]
    nonzero = {label: p for label, p in probabilities.items() if p}
    assert_close(nonzero, shown["nonzero_only"])
    assert_close(found, expected)


@pytest.mark.parametrize("stages", fixture("layers.json"), ids=lambda stages: stages["row"])
def test_every_stage_matches_the_recorded_vectors(served, stages):
    body = {**stages["request"], "model": "english"}
    prepared = _prompts(served, {"request": body})[1]
    index = list(body["questions"]).index(stages["row"])
    prompt = prepared.prompts[index]
    assert stages["positions"] == [0, *prompt.markers]
    seen = {}
    served.executor.run([prompt], observe=seen.__setitem__)
    assert list(seen) == list(stages["vectors"])
    for stage, expected in stages["vectors"].items():
        hidden = seen[stage]
        if len(hidden) != len(expected):  # the last layer computes the read rows only
            hidden = hidden[stages["positions"]]
        for row, vector in zip(hidden, expected, strict=True):
            assert row[: len(vector)].tolist() == pytest.approx(vector, abs=1e-4), stage


def test_the_last_decision_layer_sees_read_rows_only(served):
    seen = {}
    prompt = LayaPrompt((0,) * 40, batch_key="english", markers=(3, 7), type_id=0)
    served.executor.run([prompt], observe=seen.__setitem__)
    assert isinstance(served.executor, LayaExecutor)
    assert isinstance(served.executor._models["english"], LayaModel)
    assert len(seen["head_layer_0"]) == 40
    assert len(seen["head_layer_1"]) == 3
