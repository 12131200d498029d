"""mini behind the real engine and the real server."""

import pytest

from system1_core.testing import check_family, serve

PIXEL = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAA"
    "AABJRU5ErkJggg=="
)
NOUL = {"q": {"type": "noul", "instructions": "Is it late?"}}


@pytest.fixture(scope="module")
def server():
    with serve("mini") as running:
        yield running


def test_family_keeps_what_the_protocol_asks_of_all():
    check_family("mini")


def test_windows_are_shown_on_the_wire(server):
    answers = server.ask({"state": "The parcel is late. " * 300, "questions": NOUL})
    assert answers["q"]["x_windows"] == 4


def test_image_is_refused(server):
    asset = {"type": "image", "format": "png", "data_base64": PIXEL}
    body = {"state": "See <image:a>", "questions": NOUL, "assets": {"<image:a>": asset}}
    assert server.post("/v1/systemone", body).status == 422


def test_too_long_option_is_refused_with_its_place(server):
    question = {"type": "choice", "criteria": {"a": None, "b": "word " * 600}}
    reply = server.post("/v1/systemone", {"state": "", "questions": {"q3": question}})
    assert reply.status == 422
    assert "question 'q3'" in reply.body.decode()
    assert "limit 510" in reply.body.decode()


def test_openai_shape_is_answered(server):
    body = {
        "model": "mini",
        "input": "I was charged twice, please give me my money back.",
        "questions": [
            {"type": "predicate", "instructions": "Does the customer ask for a refund?"},
            {
                "type": "choice",
                "instructions": "Is it about money?",
                "choices": [{"value": True}, {"value": False}],
            },
        ],
    }
    reply = server.post("/v1/decisions", body)
    assert reply.status == 200
    assert reply.json["answers"][0]["probability"] > 0.5
    assert reply.json["answers"][1]["choice"] in (True, False)
