"""CLM with its encoder in the process: no second server."""

import json
import shutil

import numpy as np
import pytest
from conftest import ENCODER, HEADS, golden

from models_clm.encoder import Encoder, load_tokenizer
from system1_core import CheckpointError, softmax
from system1_core.testing import check_family, serve

OPTIONS = [f"clm.encoder={ENCODER}", "clm.default=clm-tiny"]


@pytest.fixture(scope="module")
def server():
    with serve(f"clm={HEADS}", options=OPTIONS, device="cpu") as running:
        yield running


def test_family_keeps_what_the_protocol_asks_of_all():
    check_family(f"clm={HEADS}", options=OPTIONS, device="cpu")


def test_deterministic_answers_do_not_depend_on_neighbours():
    options = [*OPTIONS, "clm.cache_texts=0"]
    check_family(f"clm={HEADS}", options=options, device="cpu", deterministic=True, tolerance=0)


def test_raw_answers_are_the_cosines_of_the_encoder(server):
    state, options = "Which desk?", ["Money matters", "Which mail?"]
    question = {"type": "choice", "criteria": dict.fromkeys(options)}
    body = {"model": "clm-raw", "state": state, "questions": {"q": question}}
    found = server.ask(body)["q"]["probabilities"]
    ids = [
        encoding.ids for encoding in load_tokenizer(ENCODER, 320).encode_batch([state, *options])
    ]
    z, *candidates = Encoder.load(ENCODER).embed(ids)
    expected = softmax([100 * float(np.dot(z, candidate)) for candidate in candidates])
    assert list(found.values()) == pytest.approx(expected, abs=2e-4)


def test_usage_counts_tokens_of_texts_not_seen_before(server):
    case = golden("encoder/vectors.json")[2]
    question = {"type": "choice", "criteria": {"a": case["text"]}}
    body = {"state": case["text"], "questions": {"q": question}}
    first, second = (server.post("/v1/systemone", body).json["usage"] for _ in range(2))
    assert first["input_tokens"] == len(case["token_ids"])
    assert second["input_tokens"] == 0


def test_long_text_keeps_its_end_and_marks_its_answers():
    text = golden("encoder/vectors.json")[-1]["text"]
    options = [*OPTIONS, "clm.truncate_tokens=20"]
    short = {"type": "choice", "criteria": {"a": "Money matters", "b": None}}
    long = {"type": "choice", "criteria": {"a": "Money matters", "b": "one " * 40}}
    with serve(f"clm={HEADS}", options=options, device="cpu") as server:
        whole = server.ask({"state": text, "questions": {"q": short}})["q"]
        tail = server.ask({"state": "xyz" + text, "questions": {"q": short}})["q"]
        candidate = server.ask({"state": "x", "questions": {"q": long, "r": short}})
        reference = server.ask(
            {"state": text, "questions": {"q": short}}, {"x-system1-profile": "reference"}
        )["q"]
    assert whole["x_truncated"] is True
    assert tail["probabilities"] == pytest.approx(whole["probabilities"], abs=1e-6)
    assert candidate["q"]["x_truncated"] is True
    assert "x_truncated" not in candidate["r"]
    assert "x_truncated" not in reference


def test_text_over_the_encoders_own_limit_is_refused_with_its_place():
    options = [*OPTIONS, "clm.truncate_tokens=0"]
    question = {"type": "choice", "criteria": {"fine": None, "long": "0 1 2 3 " * 600}}
    with serve(f"clm={HEADS}", options=options, device="cpu") as server:
        reply = server.post("/v1/systemone", {"state": "s", "questions": {"q3": question}})
    assert reply.status == 413
    message = reply.json["detail"]["message"]
    assert "question 'q3': option 'long': " in message
    assert "reads at most 1024" in message


@pytest.mark.parametrize(
    ("state", "criteria", "part"),
    [("", {"a": None}, "state and instructions"), ("s", {"a": {}}, "option 'a'")],
)
def test_empty_text_is_refused_with_its_place(server, state, criteria, part):
    body = {"state": state, "questions": {"q": {"type": "choice", "criteria": criteria}}}
    reply = server.post("/v1/systemone", body)
    assert reply.status == 422
    assert f"question 'q': {part}: the text is empty" in reply.json["detail"][0]["msg"]


def test_many_questions_over_one_long_state_answer_as_each_alone(server):
    state = golden("encoder/vectors.json")[4]["text"]
    questions = {f"q{i}": {"type": "noul", "instructions": f"Statement {i}?"} for i in range(12)}
    together = server.ask({"state": state, "questions": questions})
    with serve(f"clm={HEADS}", options=[*OPTIONS, "clm.cache_texts=0"], device="cpu") as fresh:
        for name, question in questions.items():
            alone = fresh.ask({"state": state, "questions": {name: question}})
            assert together[name]["noul"] == pytest.approx(alone[name]["noul"], abs=1e-5)


def test_head_of_another_width_is_refused_at_start(tmp_path):
    folder = shutil.copytree(ENCODER, tmp_path / "encoder")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"hidden_size": 128}))
    with (
        pytest.raises(CheckpointError, match="for embeddings of 64 numbers, the encoder gives 128"),
        serve(f"clm={HEADS}", options=[f"clm.encoder={folder}", "clm.default=clm-alt"]),
    ):
        pass
