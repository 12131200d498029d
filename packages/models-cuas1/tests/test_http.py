"""The same through a real server: both profiles, the families, refusals, clients side by side."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from conftest import (
    ADAPTERS,
    BASE,
    CASES,
    IMAGE_CASES,
    TEXT_CASES,
    assert_close,
    body,
    body_of,
    data_url,
    fixture,
    named,
    question,
)

from system1_core.answers import choice_confidence
from system1_core.testing import check_family, serve

REFERENCE = {"x-system1-profile": "reference"}
ERRORS = fixture("errors.json")
PROBABILITIES = 5e-4


@pytest.fixture(scope="module", autouse=True)
def one_thread_for_all():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("models_qwen3_5.executor.set_cpu_threads", lambda: 1)
        yield


@pytest.fixture(scope="module")
def server(one_thread_for_all):
    with serve(f"cuas1={ADAPTERS}", options=[f"cuas1.base={BASE}"]) as running:
        yield running


@pytest.fixture(scope="module")
def workers(one_thread_for_all):
    """A server of one adapter each, as the original's workers are."""
    singles = [f"cuas1-{modality}" for modality in ("text", "multimodal")]
    text, multimodal = (
        serve(f"{name}={ADAPTERS}", options=[f"cuas1.base={BASE}"], profile="reference")
        for name in singles
    )
    with text as one, multimodal as other:
        yield {"text": one, "multimodal": other}


@pytest.mark.parametrize("case", CASES, ids=named)
def test_a_recorded_case_in_the_reference_profile(server, case):
    reply = server.post("/v1/systemone", body_of(case), REFERENCE)
    assert reply.status == 200
    assert_close(reply.json, case["response"], PROBABILITIES)


@pytest.mark.parametrize("case", [TEXT_CASES[1], IMAGE_CASES[0]], ids=["text", "multimodal"])
def test_a_worker_of_one_adapter_answers_the_same(workers, case):
    modality = case["response"]["model"].rpartition(":")[2]
    reply = workers[modality].post("/v1/systemone", body_of(case))
    assert_close(reply.json, case["response"], PROBABILITIES)


@pytest.mark.parametrize("case", ERRORS, ids=lambda case: f"{case['worker']}-{case['name']}")
def test_a_recorded_refusal_has_its_status(workers, case):
    raw = case["raw_body_latin1"].encode("latin1") if "raw_body_latin1" in case else case["body"]
    reply = workers[case["worker"]].post("/v1/systemone", raw)
    assert reply.status == {400: 422}.get(case["status"], case["status"])
    assert reply.json["detail"]


@pytest.mark.parametrize("case", [*TEXT_CASES[:4], *IMAGE_CASES[:4]], ids=named)
def test_the_protocol_profile_gives_the_same_probabilities_in_its_own_shape(server, case):
    reply = server.post("/v1/systemone", body_of(case))
    assert reply.status == 200
    found, expected = reply.json, case["response"]
    assert found["model"] == "cuas1"
    assert found["usage"] == expected["usage"]
    assert found["x_modality"] == expected["model"].rpartition(":")[2]
    for name, answer in found["answers"].items():
        recorded = expected["answers"][name]
        assert set(answer) == {"type", "choice", "probabilities", "confidence"}
        assert_close(answer["probabilities"], recorded["probabilities"], PROBABILITIES)
        p = list(answer["probabilities"].values())
        assert sum(p) == pytest.approx(1, abs=1e-9)
        assert answer["confidence"] == pytest.approx(choice_confidence(p))
        assert answer["choice"] == recorded["choice"]


def test_the_protocols_images_reach_the_multimodal_adapter(server):
    case = IMAGE_CASES[0]
    expected = case["response"]["answers"]["q"]["probabilities"]
    content = data_url("images/small.png").partition(",")[2]
    asset = {"type": "image", "format": "png", "data_base64": content}
    item = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{content}"}}
    questions = case["request"]["questions"]
    for fields in (
        {"state": "<image:1>", "assets": {"<image:1>": asset}},
        {"state": [item]},
        {"state": "", "images": [content]},
    ):
        answers = server.ask({"model": "cuas1", "questions": questions, **fields})
        assert_close(answers["q"]["probabilities"], expected, PROBABILITIES)


def test_openais_shape_is_answered_with_text_and_with_a_picture(server):
    picture = {"type": "input_image", "image_url": data_url("images/small.png")}
    for content in ("Dialog: save?", [picture]):
        fields = {
            "model": "cuas1",
            "input": [{"role": "user", "content": content}],
            "questions": [
                {
                    "type": "choice",
                    "instructions": "Save it.",
                    "choices": [{"value": "save"}, {"value": "cancel"}],
                }
            ],
        }
        reply = server.post("/v1/decisions", fields)
        assert reply.status == 200, reply.body
        assert reply.json["answers"][0]["type"] == "choice"


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"type": "noul", "instructions": "Any?"}, "answers choice only"),
        ({"type": "score", "criteria": ["low", "high"]}, "answers choice only"),
        (question(criteria={f"o{i}": None for i in range(27)}), "27 options, limit 26"),
    ],
    ids=["noul", "score", "27 options"],
)
def test_what_the_model_cannot_answer_is_a_clear_422(server, fields, words):
    reply = server.post("/v1/systemone", body(q=fields))
    assert reply.status == 422
    assert words in reply.json["detail"][0]["msg"]


def test_text_with_an_image_is_a_clear_422(server):
    asset = {"type": "image", "data_base64": data_url("images/small.png").partition(",")[2]}
    reply = server.post("/v1/systemone", body("see pic1") | {"assets": {"pic1": asset}})
    assert reply.status == 422
    assert "either text or one picture" in reply.json["detail"][0]["msg"]


def test_the_listing_says_what_is_answered(server):
    listed = {entry["name"]: entry for entry in server.get("/v1/models").json["models"]}
    for name in ("cuas1", "cua-s1-4b-0.2", "cua-ai/cua-s1-4b-0.2"):
        assert listed[name]["x_question_types"] == ["choice"]
        assert listed[name]["x_images"] is True
        assert "26 options" in listed[name]["description"]


@pytest.mark.parametrize("model", ["cuas1", "cua-s1-4b-0.2", "jev-latest", None])
def test_the_protocol_profile_takes_any_of_its_names_or_none(server, model):
    fields = body()
    fields["model"] = model
    assert server.post("/v1/systemone", fields).status == 200


def test_many_states_of_both_modes_in_one_batch(server):
    fields = body()
    fields["states"] = [fields.pop("state"), {"image": data_url("images/small.png")}]
    for headers in ({}, REFERENCE):
        reply = server.post("/v1/systemone/batch", fields, headers)
        assert reply.status == 200, reply.body
        assert len(reply.json["results"]) == 2


def test_the_same_answers_under_many_clients(server):
    bodies = [body_of(case) for case in (*TEXT_CASES[:3], *IMAGE_CASES[:2])]
    alone = [server.ask(one) for one in bodies]
    with ThreadPoolExecutor(16) as pool:
        together = list(pool.map(server.ask, bodies * 2))
    for found, expected in zip(together, alone * 2, strict=True):
        assert_close(found, expected, 1e-4)


@pytest.mark.parametrize("name", ["cuas1", "cuas1-text", "cuas1-multimodal"])
def test_the_family_keeps_what_the_protocol_asks_of_all(name):
    check_family(f"{name}={ADAPTERS}", tolerance=1e-4, options=[f"{name}.base={BASE}"])
