"""CLM behind the real server, protocol profile: shapes, names, errors, reload, overlap."""

import os
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from conftest import CASES, HEADS, golden, options_for
from stub_server import serve_stub

from models_clm.plugin import EXAMPLE
from system1_core import DependencyFailed, choice_confidence, score_confidence
from system1_core.testing import check_family, serve

MANY = {str(index): None for index in range(300)}
NOUL = {"q": {"type": "noul", "instructions": "Is it late?"}}
PIXEL = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR4"
    "2mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="
)


@pytest.fixture
def server(stub):
    with serve(f"clm={HEADS}", options=options_for(stub)) as running:
        yield running


def test_family_keeps_what_the_protocol_asks_of_all(stub):
    check_family(f"clm={HEADS}", options=options_for(stub))


def test_family_keeps_it_with_one_request_at_a_time_and_without_a_cache(stub):
    options = options_for(stub, cache_texts=0)
    check_family(f"clm={HEADS}", options=options, scheduler="serial", deterministic=True)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_protocol_profile_gives_official_fields_and_formulas(case, server):
    body = {key: value for key, value in case["request"].items() if key != "temperature"}
    reply = server.post("/v1/systemone", body)
    if reply.status == 422:  # the protocol's grammar is narrower: null states, lists for a noul
        assert case["name"] in REFUSED
        return
    assert reply.status == 200, reply.body
    assert case["name"] not in REFUSED
    assert reply.json["model"] == case["response"]["model"]
    assert set(reply.json["usage"]) == {"input_tokens", "output_tokens"}
    for id, answer in reply.json["answers"].items():
        assert_official(answer, body["questions"][id])


REFUSED = {"state-null", "noul-criteria-list-ignored", "score-structured", "score-eleven"}


def assert_official(answer, question):
    if answer["type"] == "noul":
        assert set(answer) == {"type", "noul"}
        return
    probabilities = list(answer["probabilities"].values())
    assert sum(probabilities) == pytest.approx(1)
    if answer["type"] == "choice":
        assert set(answer) == {"type", "choice", "probabilities", "confidence"}
        assert answer["confidence"] == pytest.approx(choice_confidence(probabilities))
    else:
        assert set(answer) == {"type", "score", "legend", "probabilities", "confidence"}
        assert answer["confidence"] == pytest.approx(score_confidence(probabilities))
        assert list(answer["legend"].values()) == question["criteria"]


def test_protocol_profile_leaves_temperature_to_the_reference(server):
    body = {
        "state": "s",
        "questions": {"q": {"type": "choice", "criteria": {"a": None, "b": None}}},
    }
    plain = server.ask(body)
    assert server.ask({**body, "temperature": 0.1}) == plain
    header = {"x-system1-profile": "reference"}
    assert server.ask({**body, "temperature": 0.1}, header) != plain


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        (None, "clm-latest"),
        ("jev-latest", "clm-latest"),
        ("clm", "clm-latest"),
        ("clm-latest", "clm-latest"),
        ("clm-tiny", "clm-tiny"),
        ("clm-alt", "clm-alt"),
        ("clm-raw", "clm-raw"),
    ],
)
def test_every_head_answers_to_its_name(server, name, shown):
    body = {"state": "s", "questions": NOUL, **({} if name is None else {"model": name})}
    reply = server.post("/v1/systemone", body)
    assert (reply.status, reply.json["model"]) == (200, shown)


def test_models_lists_every_head(server):
    names = [entry["name"] for entry in server.get("/v1/models").json["models"]]
    assert {"clm", "clm-latest", "clm-alt", "clm-plain", "clm-tiny", "clm-raw"} <= set(names)
    assert len(names) == len(set(names))


def test_default_option_chooses_the_head(stub):
    body = {"state": "s", "questions": NOUL}
    with serve(f"clm={HEADS}", options=options_for(stub, default="clm-alt")) as server:
        assert server.ask(body) == server.ask({**body, "model": "clm-alt"})
        assert server.ask(body) != server.ask({**body, "model": "clm-tiny"})


def test_raw_needs_no_folder(stub):
    with serve("clm", options=options_for(stub, default="clm-raw")) as server:
        reply = server.post("/v1/systemone", {"state": "s", "questions": NOUL})
        assert reply.json["model"] == "clm-latest"
        assert 0 < reply.json["answers"]["q"]["noul"] < 1


def test_unknown_model_is_refused_with_its_name(server):
    reply = server.post("/v1/systemone", {"model": "nope", "state": "s", "questions": NOUL})
    assert reply.status == 404
    assert "nope" in reply.body.decode()


def test_image_is_refused(server):
    asset = {"type": "image", "format": "png", "data_base64": PIXEL}
    body = {"state": "See <image:a>", "questions": NOUL, "assets": {"<image:a>": asset}}
    assert server.post("/v1/systemone", body).status == 422


@pytest.mark.parametrize("path", ["/v1/systemone", "/v1/rank"])
def test_failing_embedding_server_is_502_and_fails_nobody_else(server, path):
    body = {"state": "EMBEDFAIL", "questions": NOUL, "context": "EMBEDFAIL", "answers": ["a"]}
    reply = server.post(path, body)
    assert reply.status == 502
    assert reply.json["detail"]["message"] == "embedder error 500: no such luck"
    assert server.post(path, {**body, "state": "fine", "context": "fine"}).status == 200


def test_embedding_server_that_died_is_502():
    with serve_stub() as stub:
        running = serve(f"clm={HEADS}", options=options_for(stub))
        server = running.__enter__()
    try:
        reply = server.post("/v1/systemone", {"state": "new", "questions": NOUL})
        assert reply.status == 502
        assert reply.json["detail"]["error_type"] == "dependency_error"
        assert f"embedder unreachable at {stub.url}" in reply.json["detail"]["message"]
        # What is in the cache needs nobody.
        assert server.post("/v1/systemone", EXAMPLE).status == 200
    finally:
        running.__exit__(None, None, None)


def test_server_does_not_start_without_its_embedding_server():
    options = ["clm.embeddings_url=http://127.0.0.1:1/v1/embeddings", "clm.default=clm-tiny"]
    with (
        pytest.raises(DependencyFailed, match="embedder unreachable at http://127.0.0.1:1/"),
        serve(f"clm={HEADS}", options=options),
    ):
        pass


def test_embedding_server_of_another_model_is_502(stub):
    stub.dim = 32
    with serve(f"clm={HEADS}", options=options_for(stub, default="clm-raw")) as server:
        body = {"model": "clm-tiny", "state": "s", "questions": NOUL}
        reply = server.post("/v1/systemone", body)
    assert reply.status == 502
    assert "have 32 numbers, the head reads 64" in reply.json["detail"]["message"]


def test_requests_overlap_and_none_waits_behind_another(stub, server):
    stub.gates["slow"] = threading.Event()
    stub.arrived.clear()
    with ThreadPoolExecutor(1) as pool:
        slow = pool.submit(server.post, "/v1/systemone", {"state": "slow", "questions": NOUL})
        assert stub.arrived.wait(30)
        assert server.post("/v1/systemone", {"state": "quick", "questions": NOUL}).status == 200
        assert not slow.done()
        stub.gates["slow"].set()
        assert slow.result(30).status == 200


def test_calls_of_two_requests_are_never_mixed(stub, server):
    stub.gates["state"] = threading.Event()
    states = [f"state {index}" for index in range(6)]
    before = len(stub.calls)
    with ThreadPoolExecutor(6) as pool:
        asked = [pool.submit(server.ask, {"state": s, "questions": NOUL}) for s in states]
        while len(stub.calls) < before + 6:
            stub.arrived.wait(0.01)
        stub.gates["state"].set()
        for future in asked:
            future.result(30)
    assert all(len(call["input"]) == 1 for call in stub.calls[before : before + 6])


def test_state_shared_by_candidate_is_embedded_once(stub, server):
    question = {"type": "choice", "criteria": {"a": "same words", "b": "others"}}
    before = len(stub.calls)
    server.ask({"state": "same words", "questions": {"q": question}})
    assert [call["input"] for call in stub.calls[before:]] == [["same words"], ["others"]]


def test_more_than_32_texts_are_sent_in_calls_of_32(stub, server):
    question = {"type": "choice", "criteria": {f"option {i}": None for i in range(255)}}
    before = len(stub.calls)
    answer = server.ask({"state": "many", "questions": {"q": question}})["q"]
    sizes = [len(call["input"]) for call in stub.calls[before:]]
    assert sizes[0] == 1
    assert sorted(sizes[1:]) == [31] + [32] * 7
    assert len(answer["probabilities"]) == 255


def test_changed_head_file_is_read_again_while_serving(stub, tmp_path):
    file = shutil.copy(HEADS / "clm_tiny.pt", tmp_path / "head.pt")
    body = {"state": "s", "questions": NOUL}
    with serve(f"clm={tmp_path}", options=[f"clm.embeddings_url={stub.url}"]) as server:
        first = server.ask(body)
        shutil.copy(HEADS / "clm_plain.pt", file)
        os.utime(file, (2_000_000_000, 2_000_000_000))
        assert server.ask(body) != first
        shutil.copy(HEADS / "clm_tiny.pt", file)
        os.utime(file, (2_000_000_001, 2_000_000_001))
        assert server.ask(body) == first


def test_batch_route_answers_every_state(server):
    body = {"states": ["one", "two"], "questions": NOUL}
    for headers in ({}, {"x-system1-profile": "reference"}):
        reply = server.post("/v1/systemone/batch", body, headers)
        assert reply.status == 200
        assert len(reply.json["results"]) == 2


def test_one_option_and_one_level_are_certain(server):
    questions = {
        "c": {"type": "choice", "criteria": {"only": None}},
        "s": {"type": "score", "criteria": ["only"]},
    }
    answers = server.ask({"state": "s", "questions": questions})
    assert answers["c"]["confidence"] == answers["s"]["confidence"] == 1
    assert answers["s"]["score"] == 0


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({"model": ""}, 200),
        ({"model": 0}, 422),
        ({"model": []}, 422),
        ({"model": None}, 200),
        ({"model": 7}, 422),
        ({"model": "nope"}, 422),
        ({"temperature": None}, 422),
        ({"temperature": "1e999"}, 422),
        ({"temperature": "nan"}, 422),
        ({"temperature": [1]}, 422),
        ({"temperature": 100}, 200),
        ({"state": None}, 200),
        ({"state": 7}, 200),
        ({"questions": {}}, 422),
        ({"questions": {"q": []}}, 422),
        ({"questions": {"q": {"type": ["noul"]}}}, 422),
        ({"questions": {"": {"type": "noul"}}}, 200),
        ({"questions": {"q": {"type": "score", "criteria": [None] * 40}}}, 200),
        (
            {"questions": {"q": {"type": "choice", "criteria": {str(i): 1 for i in range(300)}}}},
            200,
        ),
        ({"questions": {str(i): {"type": "noul"} for i in range(5000)}}, 422),
        ({"unknown": 1, "assets": 2}, 200),
    ],
    ids=lambda value: str(value)[:60],
)
def test_reference_profile_accepts_what_the_original_accepts(server, changes, status):
    body = {"state": "s", "questions": NOUL} | changes
    reply = server.post("/v1/systemone", body, {"x-system1-profile": "reference"})
    assert reply.status == status, reply.body


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"context": "c", "question": "q", "answers": ["a", "b", "a"]}, 200),
        ({"context": {"k": 1}, "answers": ["a"]}, 200),
        ({"answers": ["a"], "model": "clm-raw", "temperature": "2"}, 200),
        ({"context": "c"}, 422),
        ([], 422),
        ({"answers": "a"}, 422),
        ({"answers": []}, 422),
        ({"answers": ["a", ""]}, 422),
        ({"answers": ["a", 1]}, 422),
        ({"answers": ["a"], "model": "nope"}, 422),
        ({"answers": ["a"], "temperature": 0}, 422),
        ({"answers": ["a"] * 9000}, 422),
    ],
    ids=lambda value: str(value)[:60],
)
def test_rank_accepts_what_the_original_accepts(server, body, status):
    reply = server.post("/v1/rank", body)
    assert reply.status == status, reply.body
    if status == 200:
        ranked = reply.json["ranked"]
        assert [entry["rank"] for entry in ranked] == list(range(1, len(body["answers"]) + 1))
        assert sorted(entry["candidate"] for entry in ranked) == sorted(body["answers"])
        assert [e["prob"] for e in ranked] == sorted((e["prob"] for e in ranked), reverse=True)
        assert reply.json["model"] == body.get("model", "clm-latest")


def test_rank_ranks_as_a_choice_of_the_same_texts_decides(server):
    case = next(case for case in golden("errors.json") if case["name"] == "rank-ok")
    ranked = server.post("/v1/rank", case["body"].encode()).json["ranked"]
    best = case["response"]["ranked"][0]
    assert ranked[0]["candidate"] == best["candidate"]
    assert ranked[0]["prob"] == pytest.approx(best["prob"], abs=1e-5)


@pytest.mark.parametrize("place", ["context", "question", "answers"])
def test_rank_has_the_limit_on_text_of_all_routes(server, place):
    long = "a" * 400_000
    body = {"context": "c", "question": "q", "answers": ["x", "y"]}
    reply = server.post("/v1/rank", body | {place: [long] if place == "answers" else long})
    assert reply.status == 413
    assert "limit 400000" in reply.json["detail"]["message"]
