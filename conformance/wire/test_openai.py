"""OpenAI's Python client: `decisions.create` and `models.list`."""

from __future__ import annotations

from collections.abc import Iterator

import openai
import pytest
from conftest import KEYS
from questions import STATE

from serving import Serving


def client_of(server: Serving, key: str = "any") -> openai.OpenAI:
    return openai.OpenAI(api_key=key, base_url=f"{server.url}/v1", max_retries=0, timeout=60)


@pytest.fixture
def client(server: Serving) -> Iterator[openai.OpenAI]:
    with client_of(server) as one:
        yield one


def test_a_predicate_is_answered(client: openai.OpenAI) -> None:
    question = {"type": "predicate", "name": "refund", "instructions": "Do they want a refund?"}
    decision = client.decisions.create(model="jev-latest", input=STATE, questions=[question])
    (answer,) = decision.answers
    assert (answer.type, answer.name) == ("predicate", "refund")
    assert 0 <= answer.probability <= 1


def test_a_choice_keeps_the_types_of_its_values(client: openai.OpenAI) -> None:
    choices = [{"value": True}, {"value": "true", "description": "the word"}, {"value": False}]
    question = {"type": "choice", "name": "typed", "instructions": "Which?", "choices": choices}
    decision = client.decisions.create(model="jev-latest", input=STATE, questions=[question])
    (answer,) = decision.answers
    values = [one.value for one in answer.probabilities]
    assert list(map(repr, values)) == ["True", "'true'", "False"]
    assert sum(one.probability for one in answer.probabilities) == pytest.approx(1)
    best = max(answer.probabilities, key=lambda one: one.probability)
    assert (type(answer.choice), answer.choice) == (type(best.value), best.value)
    assert 0 <= answer.confidence <= 1


def test_a_score_gives_back_its_labels(client: openai.OpenAI) -> None:
    levels = [{"label": "low"}, {"label": "mid", "description": "some harm"}, {"label": "high"}]
    question = {"type": "score", "instructions": "How urgent?", "levels": levels}
    decision = client.decisions.create(model="jev-latest", input=STATE, questions=[question])
    (answer,) = decision.answers
    assert [(one.value, one.label) for one in answer.probabilities] == [
        (0, "low"),
        (1, "mid"),
        (2, "high"),
    ]
    expected = sum(one.value * one.probability for one in answer.probabilities)
    assert answer.score == pytest.approx(expected)


def test_unnamed_and_equally_named_questions_are_answered_in_order(client: openai.OpenAI) -> None:
    questions = [
        {"type": "predicate", "instructions": "Is it about money?"},
        {"type": "predicate", "name": "same", "instructions": "Is it about a parcel?"},
        {"type": "choice", "name": "same", "instructions": "Which?", "choices": TWO},
        {"type": "predicate", "instructions": "Is it polite?"},
    ]
    decision = client.decisions.create(model="jev-latest", input=STATE, questions=questions)
    assert [(one.type, one.name) for one in decision.answers] == [
        ("predicate", None),
        ("predicate", "same"),
        ("choice", "same"),
        ("predicate", None),
    ]


TWO = [{"value": "yes"}, {"value": "no"}]


def test_the_same_question_gets_the_same_numbers_on_both_routes(
    client: openai.OpenAI, server: Serving
) -> None:
    instructions = "Does the customer want a refund?"
    question = {"type": "predicate", "instructions": instructions}
    decision = client.decisions.create(model="jev-latest", input=STATE, questions=[question])
    noul = {"type": "noul", "instructions": instructions}
    other = server.ask({"state": STATE, "questions": {"q": noul}})
    assert decision.answers[0].probability == pytest.approx(other["q"]["noul"], abs=1e-5)


def test_a_conversation_is_a_state(client: openai.OpenAI) -> None:
    conversation = [
        {"role": "developer", "content": "You triage messages."},
        {"role": "user", "content": [{"type": "input_text", "text": STATE}]},
        {"type": "function_call", "call_id": "1", "name": "order", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "1", "output": "charged twice"},
    ]
    question = {"type": "predicate", "instructions": "Was the card charged twice?"}
    decision = client.decisions.create(model="jev-latest", input=conversation, questions=[question])
    assert decision.usage.total_tokens == decision.usage.input_tokens > 0


def test_an_image_to_a_text_model_is_unprocessable(client: openai.OpenAI) -> None:
    image = {"type": "input_image", "image_url": f"data:image/png;base64,{PIXEL}"}
    content = [{"type": "input_text", "text": "What is this?"}, image]
    question = {"type": "predicate", "instructions": "Is it a cat?"}
    with pytest.raises(openai.UnprocessableEntityError, match="text"):
        client.decisions.create(
            model="jev-latest", input=[{"role": "user", "content": content}], questions=[question]
        )


PIXEL = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNoAAAAggCBd81ytgAAAABJRU5ErkJggg=="
)


def test_a_bad_question_is_refused_in_openais_shape(client: openai.OpenAI) -> None:
    question = {"type": "choice", "instructions": "Which?", "choices": [{"value": "only"}] * 2}
    with pytest.raises(openai.UnprocessableEntityError) as raised:
        client.decisions.create(model="jev-latest", input=STATE, questions=[question])
    assert isinstance(raised.value.body, dict)
    assert {"message", "type", "param", "code"} <= raised.value.body.keys()
    assert raised.value.param


def test_an_unknown_model_is_not_found(client: openai.OpenAI) -> None:
    question = {"type": "predicate", "instructions": "Is it?"}
    with pytest.raises(openai.NotFoundError, match="no-such-model"):
        client.decisions.create(model="no-such-model", input=STATE, questions=[question])


def test_the_models_are_listed(client: openai.OpenAI) -> None:
    assert "jev-latest" in [model.id for model in client.models.list()]


def test_a_key_is_asked_for(locked_server: Serving) -> None:
    question = {"type": "predicate", "instructions": "Is it?"}
    asked = {"model": "jev-latest", "input": STATE, "questions": [question]}
    with (
        client_of(locked_server, "wrong") as client,
        pytest.raises(openai.AuthenticationError),
    ):
        client.decisions.create(**asked)
    with client_of(locked_server, KEYS[0]) as client:
        assert client.decisions.create(**asked).answers
