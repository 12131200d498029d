"""The rounds of a request: what is asked of the executor, and in which batches."""

import pytest
from conftest import HEADS
from stub_server import stub_vector

from models_clm.cache import EmbeddingCache
from models_clm.checkpoint import find_heads
from models_clm.processor import ClmProcessor
from models_clm.prompts import Cosines, Embedded, ScorePrompt
from models_clm.source import ServerTexts
from system1_core import Question, Request

DESK = Question(id="desk", type="choice", criteria={"a": "one", "b": "two", "c": "one"})


@pytest.fixture
def processor():
    return ClmProcessor(find_heads(HEADS, "clm_tiny"), ServerTexts(), EmbeddingCache(100))


def request(state, *questions, model=None):
    return Request(state=state, questions=questions or (DESK,), model=model)


def embed(prompts):
    return [Embedded(stub_vector(prompt.text), num_tokens=5) for prompt in prompts]


def texts(prepared):
    return [prompt.text for prompt in prepared.prompts]


def test_states_come_first_then_each_candidate_once(processor):
    first = processor.prepare(request("s"))
    assert texts(first) == ["s"]
    second = processor.finish(first.context, embed(first.prompts))
    assert texts(second) == ["one", "two"]
    third = processor.finish(second.context, embed(second.prompts))
    (score,) = third.prompts
    assert isinstance(score, ScorePrompt)
    assert (score.head, score.texts) == ("clm-tiny", ("one", "two", "one"))
    result = processor.finish(third.context, [Cosines((0.1, 0.2, 0.1), 9.0)])
    assert (result.model, result.input_tokens) == ("clm-latest", 15)
    assert result.answers[0].choice == "b"


def test_texts_of_two_requests_never_share_a_batch(processor):
    one, other = processor.prepare(request("s")), processor.prepare(request("t"))
    assert one.prompts[0].batch_key != other.prompts[0].batch_key


def test_questions_of_two_requests_share_a_batch_of_one_head(processor):
    def scored(state, model=None):
        step = processor.prepare(request(state, model=model))
        while not isinstance(step.prompts[0], ScorePrompt):
            step = processor.finish(step.context, embed(step.prompts))
        return step.prompts[0]

    assert scored("s").batch_key == scored("t", "clm-tiny").batch_key
    assert scored("s").batch_key != scored("s", "clm-alt").batch_key


def test_known_texts_are_not_asked_for_again(processor):
    step = processor.prepare(request("s"))
    while not isinstance(step.prompts[0], ScorePrompt):
        step = processor.finish(step.context, embed(step.prompts))
    again = processor.prepare(request("s"))
    assert isinstance(again.prompts[0], ScorePrompt)
    assert again.context.decision.num_tokens == 0
