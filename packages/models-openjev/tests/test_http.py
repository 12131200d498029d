"""The same through a real server: both profiles, both layouts, refusals, many clients at once."""

import base64
from concurrent.futures import ThreadPoolExecutor

import pytest
from conftest import CASES, FIXTURES, NAMES, assert_close, golden

from system1_core.testing import check_family, serve

REFERENCE = {"x-system1-profile": "reference"}
PACKAGE = f"openjev={FIXTURES / 'checkpoint'}"
MERGED = f"openjev={FIXTURES / 'merged'}"
OPTIONS = [f"openjev.base={FIXTURES / 'base'}"]
NOUL = {"q": {"type": "noul", "instructions": "Is it?"}}
# A question without an id is the original's alone: the protocol asks for one.
ASKABLE = [case for case in CASES if "" not in case["request"]["questions"]]


@pytest.fixture(scope="module")
def server():
    with serve(PACKAGE, options=OPTIONS) as running:
        yield running


@pytest.mark.parametrize("case", CASES, ids=NAMES)
def test_recorded_case_in_the_reference_profile(server, case):
    reply = server.post("/v1/systemone", case["request"], REFERENCE)
    assert reply.status == 200
    found, expected = reply.json, case["response"]
    assert_close(found["answers"], expected["answers"])
    assert (found["model"], found["usage"]) == (expected["model"], expected["usage"])
    assert found["metadata"]["temperature"] == expected["metadata"]["temperature"]
    count = expected["metadata"]["candidate_sequences"]
    assert found["metadata"]["candidate_sequences"] == count
    assert found["metadata"]["inference_seconds"] > 0


@pytest.mark.parametrize("case", golden("errors.json"), ids=lambda case: case["name"])
def test_what_the_original_refuses_is_refused_in_the_protocols_shape(server, case):
    reply = server.post("/v1/systemone", case["body"].encode(), REFERENCE)
    assert reply.status == (404 if case["name"] == "unknown-model" else 422)
    assert reply.json["detail"]


def test_recorded_answers_in_the_protocol_profile_have_the_official_fields(server):
    for case in ASKABLE:
        reply = server.post("/v1/systemone", case["request"])
        body, expected = reply.json, case["response"]
        assert reply.status == 200
        assert body["model"] == "openjev"
        assert body["usage"] == expected["usage"]
        assert all(name.startswith("x_") for name in set(body) - {"model", "answers", "usage"})
        for name, answer in expected["answers"].items():
            assert_close(dict(sorted(body["answers"][name].items())), dict(sorted(answer.items())))


def test_the_merged_export_answers_as_recorded():
    with serve(MERGED, options=OPTIONS[:1], profile="reference") as running:
        for case in CASES[:6]:
            found = running.post("/v1/systemone", case["request"]).json
            assert_close(found["answers"], case["answers_merged_bf16_weights"])


@pytest.mark.parametrize(
    "name", ["openjev", "open-jev", "jev-latest", "Qwen/Qwen3.5-tiny-fixture", None]
)
def test_the_original_names_of_the_model_are_accepted(server, name):
    for headers in ({}, REFERENCE):
        body = {"model": name, "state": "x", "questions": NOUL}
        assert server.post("/v1/systemone", body, headers).status == 200


def test_a_published_checkpoint_that_is_not_served_is_not_found(server):
    body = {"model": "open-jev-27b-v1.1", "state": "x", "questions": NOUL}
    assert server.post("/v1/systemone", body).status == 404


def test_images_are_refused_in_the_protocol_profile(server):
    png = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(24)).decode()
    assets = {"pic": {"type": "image", "format": "png", "data_base64": png}}
    body = {"state": "see pic", "questions": NOUL, "assets": assets}
    reply = server.post("/v1/systemone", body)
    assert reply.status == 422
    assert "reads text only" in reply.json["detail"][0]["msg"]


def test_a_batch_of_states_answers_as_the_states_alone(server):
    states = ["one", {"b": 1, "a": [2]}]
    for headers in ({}, REFERENCE):
        reply = server.post("/v1/systemone/batch", {"states": states, "questions": NOUL}, headers)
        for state, found in zip(states, reply.json["results"], strict=True):
            alone = server.ask({"state": state, "questions": NOUL}, headers)
            assert_close(found["answers"], alone, 1e-4)


def test_a_body_over_the_originals_limit_is_too_large(server):
    body = {"state": "x", "questions": NOUL, "nonce": "x" * 2**22}
    assert server.post("/v1/systemone", body, REFERENCE).status == 413
    assert server.post("/v1/systemone", body).status == 200


def test_the_same_answers_under_32_clients(server):
    bodies = [case["request"] | {"nonce": index} for index, case in enumerate(ASKABLE[:12])]
    alone = [server.ask(body) for body in bodies]
    with ThreadPoolExecutor(32) as pool:
        together = list(pool.map(server.ask, bodies * 3))
    for found, expected in zip(together, alone * 3, strict=True):
        assert_close(found, expected, 1e-4)


@pytest.mark.parametrize("deterministic", [False, True])
def test_the_family_keeps_what_the_protocol_asks_of_all(deterministic):
    tolerance = 0 if deterministic else 1e-4
    check_family(PACKAGE, options=OPTIONS, deterministic=deterministic, tolerance=tolerance)
