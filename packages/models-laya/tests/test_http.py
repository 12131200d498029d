"""The same through a real server: both profiles, refusals, and 32 clients at once."""

import json
from concurrent.futures import ThreadPoolExecutor

import pytest
from conftest import CASES, FIXTURES, assert_close, fixture

from system1_core.testing import check_family, serve

OPTIONS = [
    f"laya.english={FIXTURES / 'checkpoint'}",
    f"laya.multilingual={FIXTURES / 'checkpoint-multilingual'}",
    "laya.threads=1",
]
ERRORS = [case for case in fixture("errors.json") if "body_recipe" not in case]
REFERENCE = {"x-system1-profile": "reference"}


@pytest.fixture(scope="module")
def server():
    with serve("laya", options=OPTIONS) as running:
        yield running


def _name(case):
    return case["name"]


@pytest.mark.parametrize("case", CASES, ids=_name)
def test_recorded_case_in_the_reference_profile(server, case):
    reply = server.post(case["endpoint"], case["request"], REFERENCE)
    assert reply.status == 200
    assert_close(reply.json, case["response"])


@pytest.mark.parametrize("case", ERRORS, ids=_name)
def test_accept_or_refuse_is_the_originals(server, case):
    body = case["raw_body"].encode() if "raw_body" in case else case["request"]
    reply = server.post(case["endpoint"], body, REFERENCE)
    assert reply.status == {400: 422}.get(case["status"], case["status"])
    if reply.status != 200:
        assert "detail" in reply.json


def test_strict_and_tournament_servers_answer_as_recorded():
    recorded = fixture("server.json")
    mixed = next(case for case in CASES if case["name"] == "mixed_5")["request"]
    family = f"laya-english={FIXTURES / 'checkpoint'}"
    settings = {"profile": "reference"}
    threads = "laya-english.threads=1"
    with serve(family, options=[threads, "laya-english.strict=1"], **settings) as strict:
        reply = strict.post("/v1/systemone", mixed)
        assert_close(reply.json, recorded["strict"][0]["response"])
    grouped = [threads, "laya-english.tournament_group=16"]
    with serve(family, options=grouped, **settings) as tournament:
        exchange = recorded["tournament_16"][0]
        found = tournament.post("/v1/systemone", exchange["request"]).json
        shown = exchange["response"]["answers"]["i"]["probabilities"]["nonzero_only"]
        probabilities = found["answers"]["i"]["probabilities"]
        assert_close({name: p for name, p in probabilities.items() if p}, shown)


@pytest.mark.parametrize(
    ("model", "answered_by"),
    [
        ("laya", "laya-multilingual"),
        ("convaiinnovations/laya", "laya-multilingual"),
        ("jev-latest", "laya-multilingual"),
        ("english", "laya-english"),
        ("laya-english", "laya-english"),
        ("ml", "laya-multilingual"),
    ],
)
def test_model_names_route_and_pin(server, model, answered_by):
    body = {"model": model, "state": "請退款", "questions": {"q": {"type": "noul"}}}
    reply = server.post("/v1/systemone", body)
    assert reply.json["model"] == answered_by
    assert reply.json["x_routing"]["model"] == answered_by.removeprefix("laya-")


def test_a_checkpoint_that_is_not_served_is_not_found(server):
    body = {"model": "typed-decisions", "state": "x", "questions": {"q": {"type": "noul"}}}
    assert server.post("/v1/systemone", body).status == 404


def test_the_same_answers_under_32_clients(server):
    bodies = [
        case["request"] | {"nonce": index}
        for index, case in enumerate(CASES)
        if "states" not in case["request"] and "choice_scalar" not in case["name"]
    ]
    bodies = [body for body in bodies if server.post("/v1/systemone", body).status == 200]
    assert len(bodies) > 10
    alone = [server.ask(body) for body in bodies]
    with ThreadPoolExecutor(32) as pool:
        together = list(pool.map(server.ask, bodies * 4))
    for found, expected in zip(together, alone * 4, strict=True):
        assert_close(found, expected, 1e-5)


@pytest.mark.parametrize(
    "name",
    [
        f"laya-english={FIXTURES / 'checkpoint'}",
        f"laya-multilingual={FIXTURES / 'checkpoint-multilingual'}",
        f"laya={FIXTURES}",
    ],
    ids=["english", "multilingual", "both"],
)
def test_the_family_keeps_what_the_protocol_asks_of_all(name):
    check_family(name)


def test_a_body_of_bytes_that_are_no_text_is_refused(server):
    assert server.post("/v1/systemone", b"\xff\xfe{}", REFERENCE).status == 422


def test_nan_and_duplicate_keys_are_refused(server):
    for raw in ('{"state": NaN, "questions": {}}', '{"state": "x", "state": "y", "questions": {}}'):
        reply = server.post("/v1/systemone", raw.encode(), REFERENCE)
        assert reply.status == 422
        assert json.loads(reply.body)["detail"]
