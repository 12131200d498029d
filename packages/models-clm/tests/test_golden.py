"""The original's answers, through the engine and over HTTP."""

import asyncio

import pytest
from conftest import CASES, HEADS, golden, options_for, running_engine
from stub_server import count_tokens, serve_stub, stub_vector

from models_clm.prompts import Cosines
from models_clm.reference import ReferenceDialect
from system1_core.testing import serve
from system1_core.wire.dialect import Body, RequestLimits

COSINE = 2e-6
IDS = [case["name"] for case in CASES]
ERRORS = golden("errors.json")
OPEN = [case for case in ERRORS if not case["api_key_set"]]
KEYED = [case for case in ERRORS if case["api_key_set"]]


def tolerance(case):
    return 2e-4 if case["questions"][0]["scale"] == 100.0 else 1e-5


def assert_response(found, expected, within):
    assert found["model"] == expected["model"]
    assert found["usage"] == expected["usage"]
    assert list(found) == list(expected)
    assert list(found["answers"]) == list(expected["answers"])
    for id, answer in expected["answers"].items():
        assert_answer(found["answers"][id], answer, within)


def assert_answer(found, expected, within):
    assert set(found) == set(expected)
    for name, value in expected.items():
        if name == "probabilities":
            assert list(found[name]) == list(value)
            assert found[name] == pytest.approx(value, abs=within)
        elif isinstance(value, float):
            levels = len(expected["probabilities"]) if name == "score" else 1
            assert found[name] == pytest.approx(value, abs=within * levels)
        else:
            assert found[name] == value


def expected_calls(case):
    """What the original sent, with the side that later revisions name."""
    return [{**call, "truncation_side": "left"} for call in case["embedding_calls"]]


def test_stub_gives_the_vectors_of_the_golden_cases():
    stored = golden("stub_vectors.json")
    for text, vector in stored["vectors"].items():
        assert stub_vector(text, stored["dim"]).tolist() == pytest.approx(vector, abs=1e-8)


async def answer_twice(case, stub):
    """Both rendered responses of a fresh engine, and the cosines it computed for the first."""
    dialect, seen, responses = ReferenceDialect(), [], []
    async with running_engine(*options_for(stub)) as engine:
        execute = engine.executor.execute

        async def watched(prompts):
            outputs = await execute(prompts)
            seen.extend(output for output in outputs if isinstance(output, Cosines))
            return outputs

        engine.executor.execute = watched
        for _ in range(2):
            request = dialect.parse(Body(json=case["request"]), RequestLimits())
            result = await engine.answer(request)
            responses.append(dialect.render(request, result, result.model))
    return responses, seen[: len(case["questions"])]


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_golden_case_through_processor_and_executor(case, stub):
    (first, second), cosines = asyncio.run(answer_twice(case, stub))
    assert_response(first, case["response"], tolerance(case))
    again = {**case["response"], "usage": case["usage_second_call"]}
    assert_response(second, again, tolerance(case))
    for found, expected in zip(cosines, case["questions"], strict=True):
        assert found.values == pytest.approx(expected["cosines"], abs=COSINE)
        assert found.scale == pytest.approx(expected["scale"], abs=1e-6)


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_calls_to_the_encoder_are_the_originals(case, stub):
    asyncio.run(answer_twice(case, stub))
    # Calls of one pass overlap, so that the order is certain only between states and candidates.
    key = str
    assert sorted(stub.calls, key=key) == sorted(expected_calls(case), key=key)
    assert stub.calls[0] == expected_calls(case)[0]


@pytest.fixture(scope="module")
def reference_server():
    with (
        serve_stub() as stub,
        serve(
            f"clm={HEADS}", options=options_for(stub, cache_texts=0), profile="reference"
        ) as server,
    ):
        yield server


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_golden_case_over_http_with_the_reference_profile(case, reference_server):
    reply = reference_server.post("/v1/systemone", case["request"])
    assert reply.status == 200
    assert_response(reply.json, case["response"], tolerance(case))


@pytest.mark.parametrize("case", OPEN, ids=lambda case: case["name"])
def test_golden_errors_over_http(case, reference_server):
    reply = reference_server.post(case["path"], case["body"].encode(), case["headers"])
    assert reply.status == case["status"]
    if case["status"] != 200:
        assert reply.json["detail"]
    elif case["path"] == "/v1/rank":
        for found, expected in zip(reply.json["ranked"], case["response"]["ranked"], strict=True):
            assert_answer(found, expected, 1e-5)
        assert reply.json["model"] == case["response"]["model"]


def test_golden_auth_errors_over_http(stub):
    with serve(
        f"clm={HEADS}", options=options_for(stub), profile="reference", keys=("k1",)
    ) as server:
        for case in KEYED:
            reply = server.post(case["path"], case["body"].encode(), case["headers"])
            assert reply.status == case["status"], case["name"]


def test_usage_counts_what_the_embedding_server_counted(stub):
    assert count_tokens(["abcdefgh", ""]) == 3
    with serve(f"clm={HEADS}", options=options_for(stub), profile="reference") as server:
        body = {
            "state": "new text",
            "questions": {"q": {"type": "choice", "criteria": {"a": None}}},
        }
        assert server.post("/v1/systemone", body).json["usage"]["input_tokens"] == 3
        assert server.post("/v1/systemone", body).json["usage"]["input_tokens"] == 0
