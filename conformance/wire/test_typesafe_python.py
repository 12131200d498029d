"""The official Python SDK."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import typesafe_sdk as sdk
from conftest import KEYS
from questions import BODY, STATE, body, distance

from serving import Serving

# The smallest PNG: one grey pixel.
PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNoAAAAggCBd81ytgAAAABJRU5ErkJggg=="
)

QUESTIONS = {
    "topic": sdk.Choice(instructions="What is it about?", criteria={"billing": None, "other": "x"}),
    "urgency": sdk.Score(instructions="How urgent?", criteria=["can wait", {"by": "today"}]),
    "refund": sdk.Noul(instructions="Do they want a refund?", criteria={"true": "they ask for it"}),
}


def client_of(server: Serving, key: str = "any") -> sdk.TypeSafeClient:
    retry = sdk.RetryPolicy(max_retries=0)
    return sdk.TypeSafeClient(api_key=key, base_url=server.url, retry=retry, timeout=60)


@pytest.fixture
def client(server: Serving) -> Iterator[sdk.TypeSafeClient]:
    with client_of(server) as one:
        yield one


def test_every_answer_type_is_parsed(client: sdk.TypeSafeClient) -> None:
    response = client.system_one(state=STATE, questions=QUESTIONS)
    topic, urgency = response.choices["topic"], response.scores["urgency"]
    assert list(topic.probabilities) == ["billing", "other"]
    assert sum(topic.probabilities.values()) == pytest.approx(1)
    assert topic.choice == max(topic.probabilities, key=topic.probabilities.__getitem__)
    assert urgency.legend == {0: "can wait", 1: {"by": "today"}}
    assert urgency.score == pytest.approx(urgency.probabilities[1])
    assert 0 <= response.nouls["refund"].noul <= 1
    assert response.usage.input_tokens > 0


def test_the_request_id_is_read(client: sdk.TypeSafeClient) -> None:
    response = client.system_one(state=STATE, questions=QUESTIONS)
    assert response.request_id


def test_a_long_state_goes_compressed_and_answers_the_same(server: Serving) -> None:
    state = {"message": STATE, "history": ["a line of an order's history"] * 60}
    with client_of(server) as zstd:
        compressed = zstd.system_one(state=state, questions=QUESTIONS)
    plain_client = sdk.TypeSafeClient(api_key="any", base_url=server.url, compression=False)
    with plain_client as plain:
        uncompressed = plain.system_one(state=state, questions=QUESTIONS)
    assert compressed.usage == uncompressed.usage
    difference = distance(compressed.model_dump()["answers"], uncompressed.model_dump()["answers"])
    assert difference <= 1e-5


def test_an_image_to_a_text_model_is_unprocessable(client: sdk.TypeSafeClient) -> None:
    with pytest.raises(sdk.TypeSafeUnprocessableEntityError, match="text"):
        client.system_one(state=["What is this?", sdk.Image(PIXEL)], questions=QUESTIONS)


def test_a_large_image_comes_multipart_and_compressed_and_is_refused_the_same(
    client: sdk.TypeSafeClient,
) -> None:
    photo = sdk.Image(PIXEL + bytes(200_000))
    with pytest.raises(sdk.TypeSafeUnprocessableEntityError):
        client.system_one(state=["What is this?", photo], questions=QUESTIONS)


def test_an_unknown_model_is_not_found(client: sdk.TypeSafeClient) -> None:
    with pytest.raises(sdk.TypeSafeNotFoundError, match="no-such-model"):
        client.system_one(state=STATE, questions=QUESTIONS, model="no-such-model")


def test_too_many_options_are_unprocessable(client: sdk.TypeSafeClient) -> None:
    many = sdk.Choice(criteria={f"option {number}": None for number in range(256)})
    with pytest.raises(sdk.TypeSafeUnprocessableEntityError, match="255"):
        client.system_one(state=STATE, questions={"many": many})


def test_the_models_are_listed(client: sdk.TypeSafeClient) -> None:
    names = [model.name for model in client.models.list().models]
    assert "jev-latest" in names
    assert len(names) == len(set(names)) > 1


def test_two_hundred_parallel_calls_equal_serial_ones(server: Serving) -> None:
    bodies = [body(number) for number in range(200)]
    with client_of(server) as client:

        def ask(number: int) -> dict[str, object]:
            asked = bodies[number]
            response = client.system_one(state=asked["state"], questions=asked["questions"])
            answers: dict[str, object] = response.model_dump()["answers"]
            return answers

        with ThreadPoolExecutor(64) as pool:
            parallel = list(pool.map(ask, range(200)))
        serial = [ask(number) for number in range(200)]
    assert max(map(distance, parallel, serial)) <= 1e-5
    # Different states did get different answers, so that a mix-up would show.
    assert distance(parallel[0], parallel[1]) > 1e-5


@pytest.mark.parametrize("key", KEYS)
def test_each_key_of_the_file_is_accepted(locked_server: Serving, key: str) -> None:
    with client_of(locked_server, key) as client:
        assert client.system_one(**BODY).answers.keys() == BODY["questions"].keys()


def test_a_wrong_key_is_an_authentication_error(locked_server: Serving) -> None:
    with (
        client_of(locked_server, KEYS[0][:-1]) as client,
        pytest.raises(sdk.TypeSafeAuthenticationError) as raised,
    ):
        client.system_one(**BODY)
    assert raised.value.request_id


def test_the_models_are_listed_to_key_holders_only(locked_server: Serving) -> None:
    refused = pytest.raises(sdk.TypeSafeAuthenticationError)
    with client_of(locked_server, "wrong") as client, refused:
        client.models.list()
    with client_of(locked_server, KEYS[1]) as client:
        assert client.models.list().models
