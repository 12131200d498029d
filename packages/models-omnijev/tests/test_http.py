"""The same through a real server: both profiles, and what the protocol asks of all families."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from conftest import CASES, MODEL, NAMES, ask, assert_close, body_of, official

from models_omnijev.plugin import EXAMPLE
from system1_core.testing import check_family, serve

REFERENCE = {"x-system1-profile": "reference"}
NOUL = {"type": "noul", "instructions": "It is dark."}


@pytest.fixture(scope="module")
def server():
    with serve(f"omnijev={MODEL}") as running:
        yield running


@pytest.mark.parametrize("name", NAMES)
def test_recorded_case_in_the_reference_profile(server, name):
    reply = server.post("/v1/systemone", body_of(CASES[name]), REFERENCE)
    assert reply.status == 200
    assert_close(reply.json["answers"], CASES[name]["answers"])
    usage = {"input_tokens": CASES[name]["input_tokens"], "output_tokens": 0}
    assert reply.json["usage"] == usage


def test_a_server_of_the_reference_profile_needs_no_header():
    with serve(f"omnijev={MODEL}", profile="reference") as server:
        case = CASES["score_numbers"]
        assert_close(server.ask(body_of(case)), case["answers"])


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"questions": {"q": NOUL}}, 422),
        ({"state": {"images": []}, "questions": {"q": NOUL}}, 422),
        (ask({}), 422),
        (ask({"q": {"type": "noul"}}), 422),
        (ask({"q": {"type": "choice", "instructions": "x", "options": []}}), 422),
        (ask({"q": {"type": "choice", "instructions": "x", "criteria": ["a"]}}), 422),
        (ask({"q": {"type": "score", "instructions": "x", "levels": []}}), 422),
        (ask({"q": NOUL | {"instructions": "<|opt|>"}}), 422),
        (ask({"q": NOUL}) | {"model": 5}, 422),
        (ask({"q": NOUL}) | {"model": "other"}, 404),
        (b"{", 422),
        (ask({"q": NOUL}) | {"model": "tinnel123/OmniJev"}, 200),
        (ask({"q": NOUL}) | {"model": "omnijev-4b-v1.1"}, 200),
        (ask({"q": NOUL}), 200),
    ],
)
def test_the_reference_profile_accepts_and_refuses(server, body, status):
    reply = server.post("/v1/systemone", body, REFERENCE)
    assert reply.status == status
    assert ("detail" in reply.json) is (status != 200)


def test_a_protocol_answer_has_the_protocols_fields(server):
    reply = server.post("/v1/systemone", {"model": "omnijev", **EXAMPLE})
    assert reply.json["model"] == "omnijev"
    answers = reply.json["answers"]
    assert set(answers["next"]) == {
        *("type", "choice", "probabilities", "confidence"),
        *("x_probabilities", "x_abstain", "x_valid"),
    }
    assert set(answers["risk"]) == {
        *("type", "score", "legend", "probabilities", "confidence", "x_level"),
    }
    assert set(answers["error"]) == {"type", "noul"}
    for number in reply.json["usage"].values():
        assert type(number) is int


def test_a_request_without_an_image_is_422(server):
    reply = server.post("/v1/systemone", {"state": "text", "questions": {"q": NOUL}})
    assert reply.status == 422
    assert "send one at least" in reply.json["detail"][0]["msg"]


def test_many_clients_at_once_get_the_answers_they_get_alone(server):
    bodies = [official({"q": NOUL | {"instructions": f"It is {i}."}}) for i in range(6)]
    alone = [server.ask(body) for body in bodies]
    with ThreadPoolExecutor(12) as pool:
        together = list(pool.map(server.ask, bodies * 3))
    for found, expected in zip(together, alone * 3, strict=True):
        assert_close(found, expected, 1e-4)


def test_the_family_keeps_what_the_protocol_asks_of_all():
    check_family(f"omnijev={MODEL}", tolerance=1e-4)
