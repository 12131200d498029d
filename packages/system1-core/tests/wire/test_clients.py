"""The official clients against the dialects, without a socket; skipped where they are absent."""

import json

import pytest

from system1_core.answers import ChoiceAnswer, NoulAnswer, Result, ScoreAnswer
from system1_core.errors import System1Error
from system1_core.wire.decisions import Decisions
from system1_core.wire.dialect import RequestLimits
from system1_core.wire.strict_json import dumps
from system1_core.wire.systemone import SystemOne
from system1_core.wire.transport import TransportLimits, decode


class Loopback:
    """Answers HTTP requests with uniform probabilities; keeps what was parsed."""

    def __init__(self, dialect):
        self.dialect = dialect
        self.requests = []
        self.headers = []

    def answer(self, content, headers):
        """Status and body for one request; `headers` has lower-case names."""
        self.headers.append(headers)
        try:
            body = decode(content, headers, TransportLimits())
            request = self.dialect.parse(body, RequestLimits())
        except System1Error as error:
            return error.status, dumps(self.dialect.error(error))
        self.requests.append(request)
        answers = [self._uniform(question) for question in request.questions]
        return 200, dumps(
            self.dialect.render(request, Result(answers=answers, input_tokens=3), "m")
        )

    def _uniform(self, question):
        share = 1 / len(question.options)
        if question.type == "noul":
            return NoulAnswer(probability=share)
        if question.type == "score":
            return ScoreAnswer(probabilities=[share] * len(question.options))
        return ChoiceAnswer(probabilities=dict.fromkeys(question.options, share))


@pytest.fixture
def openai_client():
    openai = pytest.importorskip("openai")
    httpx = pytest.importorskip("httpx")
    loopback = Loopback(Decisions())

    def handle(request):
        status, body = loopback.answer(request.read(), dict(request.headers))
        return httpx.Response(status, json=json.loads(body))

    client = openai.OpenAI(
        api_key="none",
        base_url="http://loopback/v1",
        http_client=httpx.Client(transport=httpx.MockTransport(handle)),
    )
    if not hasattr(client, "decisions"):
        pytest.skip("this version of openai has no decisions")
    with client:
        yield openai, client, loopback


def test_openais_client_reads_every_kind_of_answer(openai_client):
    _, client, loopback = openai_client
    decision = client.decisions.create(
        model="m",
        input=[
            {"role": "user", "content": [{"type": "input_text", "text": "hi"}]},
            {"type": "function_call", "call_id": "1", "name": "f", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "1", "output": "ok"},
        ],
        questions=[
            {"type": "predicate", "instructions": "It rains.", "name": "rain"},
            {
                "type": "choice",
                "instructions": "Which?",
                "choices": [{"value": True}, {"value": "true", "description": "the word"}],
            },
            {"type": "score", "instructions": "?", "levels": [{"label": "a"}, {"label": "b"}]},
        ],
        prompt_cache_key="k",
    )
    predicate, choice, score = decision.answers
    assert (predicate.type, predicate.name, predicate.probability) == ("predicate", "rain", 0.5)
    assert choice.choice is True
    assert [entry.value for entry in choice.probabilities] == [True, "true"]
    assert [(entry.value, entry.label) for entry in score.probabilities] == [(0, "a"), (1, "b")]
    assert decision.usage.total_tokens == 3
    assert loopback.requests[0].state[0] == {"role": "user", "content": "hi"}


def test_openais_client_raises_its_own_error_with_our_message(openai_client):
    openai, client, _ = openai_client
    with pytest.raises(openai.UnprocessableEntityError, match="0 questions") as raised:
        client.decisions.create(model="m", input="s", questions=[])
    assert raised.value.param == "questions"
    assert raised.value.type == "invalid_request_error"


def _missing_codec():
    """The SDK compresses when a codec is importable: not without its zstd extra before 3.14."""
    try:
        import compression.zstd  # noqa: F401
    except ImportError:
        try:
            import backports.zstd  # noqa: F401
        except ImportError:
            return ("zstd",)
    return ()


@pytest.fixture
def typesafe():
    sdk = pytest.importorskip("typesafe_sdk")
    httpx2 = pytest.importorskip("httpx2")
    loopback = Loopback(SystemOne())

    def handle(request):
        status, body = loopback.answer(request.read(), dict(request.headers))
        return httpx2.Response(status, content=body, headers={"content-type": "application/json"})

    client = sdk.TypeSafeClient(
        api_key="none", base_url="http://loopback", transport=httpx2.MockTransport(handle)
    )
    yield sdk, client, loopback
    client.close()


def test_the_official_sdks_compressed_body_arrives_whole(typesafe):
    _, client, loopback = typesafe
    state = "long text " * 500
    response = client.system_one(
        state=state,
        questions={
            "c": {"type": "choice", "criteria": {"a": None, "b": "second"}},
            "s": {"type": "score", "criteria": ["low", "high"]},
            "n": {"type": "noul", "instructions": "Is it?"},
        },
    )
    assert loopback.requests[0].state == state
    assert "zstd" in (loopback.headers[0].get("content-encoding"), *_missing_codec())
    assert set(response.answers) == {"c", "s", "n"}
    assert response.answers["c"].probabilities == {"a": 0.5, "b": 0.5}


def test_the_official_sdks_images_arrive_under_reference_and_alias(typesafe, png):
    sdk, client, loopback = typesafe
    referred, named = sdk.Image(png(1)), sdk.Image(png(2))
    client.system_one(
        state={"shots": [referred, f"and {referred}"], "named": "pic1", "filler": "x" * 2000},
        questions={"n": {"type": "noul", "instructions": ["like", named, "?"]}},
        assets={"pic1": named},
    )
    images = loopback.requests[0].images
    assert loopback.headers[0]["content-type"].startswith("multipart/form-data")
    assert list(images) == [str(referred), "pic1"]
    assert [image.data for image in images.values()] == [png(1), png(2)]


def test_the_official_sdk_shows_where_a_body_is_wrong(typesafe):
    sdk, client, _ = typesafe
    with pytest.raises(sdk.TypeSafeError, match=r"questions\.q\.choice\.criteria"):
        client.system_one(
            state="s",
            questions={"q": {"type": "choice", "criteria": {str(i): None for i in range(256)}}},
        )
