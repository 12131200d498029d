"""Every way of reading the state: what may be cached, and what never moves an answer."""

import dataclasses

import numpy as np
import pytest

from models_mini.checkpoint import open_checkpoint
from models_mini.executor import MiniExecutor
from models_mini.plan import BESIDE_TOKENS
from models_mini.processor import MiniProcessor
from models_mini.prompt import MiniPrompt
from models_mini.readout import Readout
from system1_core import InvalidRequest, Question, Request

STATE = "I was charged twice, please give me my money back."
QUESTIONS = {
    "team": {"type": "choice", "criteria": {"billing": "charges", "bugs": None, "sales": None}},
    "level": {"type": "score", "instructions": "How urgent?", "criteria": ["low", "mid", "high"]},
    "refund": {"type": "noul", "instructions": "Does the customer ask for a refund?"},
    "late": {"type": "noul", "instructions": "Is it late?", "criteria": {"true": "too late"}},
}
WAYS = {
    "pooled": ("pooled", "pooled", "pooled"),
    "pair for noul": ("pooled", "pooled", "prefix0"),
    "joint for noul": ("pooled", "prefix3", "joint"),
    "one text for noul": ("pooled", "pooled", "joint-single"),
    "one text beside": ("prefix4", "pooled", "prefix0-single"),
    "late layers": ("prefix4", "prefix2", "prefix0"),
    "joint": ("joint", "joint", "joint"),
}


class Way:
    """The shipped weights, read in another way; answers need not make sense."""

    def __init__(self, names):
        checkpoint = open_checkpoint()
        readouts = dict(zip(("choice", "score", "noul"), names, strict=True))
        checkpoint = dataclasses.replace(
            checkpoint, config=checkpoint.config | {"readouts": readouts}
        )
        self.processor = MiniProcessor(checkpoint, 2**20)
        self.executor = MiniExecutor(checkpoint, 1)

    def prepare(self, state, questions):
        asked = tuple(Question(id=id, **fields) for id, fields in questions.items())
        return self.processor.prepare(Request(state=state, questions=asked))

    def finish(self, prepared, outputs):
        return self.processor.finish(prepared.context, outputs)

    def result(self, state, questions):
        prepared = self.prepare(state, questions)
        return self.finish(prepared, self.executor.execute(prepared.prompts))

    def answers(self, state, questions):
        return [numbers(answer) for answer in self.result(state, questions).answers]


def numbers(answer):
    if hasattr(answer, "probability"):
        return [answer.probability]
    found = answer.probabilities
    return [found[name] for name in sorted(found)] if hasattr(found, "keys") else list(found)


def close(one, other):
    return np.concatenate(one) == pytest.approx(np.concatenate(other), abs=1e-5)


@pytest.fixture(scope="module", params=WAYS.values(), ids=WAYS.keys())
def way(request):
    return Way(request.param)


def test_questions_ids_and_order_never_move_an_answer(way):
    together = way.answers(STATE, QUESTIONS)
    alone = [way.answers(STATE, {"x": fields})[0] for fields in QUESTIONS.values()]
    backwards = way.answers(STATE, {f"{id}'": f for id, f in reversed(QUESTIONS.items())})
    assert close(together, alone)
    assert close(together, backwards[::-1])


def test_order_of_options_never_moves_an_answer(way):
    turned = QUESTIONS["team"] | {"criteria": dict(reversed(QUESTIONS["team"]["criteria"].items()))}
    one, other = (way.answers(STATE, {"q": q}) for q in (QUESTIONS["team"], turned))
    assert close(one, other)


def test_batched_requests_answer_as_alone(way):
    states = [STATE, "", "word " * 700, "ok"]
    alone = [way.answers(state, QUESTIONS) for state in states]
    prepared = [way.prepare(state, QUESTIONS) for state in states]
    outputs = iter(way.executor.execute([p for one in prepared for p in one.prompts]))
    for one, expected in zip(prepared, alone, strict=True):
        result = way.finish(one, [next(outputs) for _ in one.prompts])
        assert close([numbers(answer) for answer in result.answers], expected)


def test_windows_of_a_long_state_are_all_read_and_reported(way):
    result = way.result("word " * 1200 + STATE, QUESTIONS)
    assert [answer.extra for answer in result.answers] == [{"x_windows": 3}] * 4
    other = way.answers("word " * 1200, QUESTIONS)
    assert not close([numbers(answer) for answer in result.answers], other)


def test_cached_options_change_neither_answers_nor_tokens(way):
    way.processor.cache = type(way.processor.cache)(2**20)
    first, second = (way.result(STATE, QUESTIONS) for _ in range(2))
    assert first.input_tokens == second.input_tokens
    assert close(*([numbers(one) for one in result.answers] for result in (first, second)))


def test_many_questions_beside_a_state_are_cut_into_several_prompts(way):
    many = {
        f"q{index}": {"type": "noul", "instructions": f"Is it number {index} or more of them?"}
        for index in range(40)
    }
    prepared = way.prepare(STATE, many)
    assert max(prompt.num_tokens for prompt in prepared.prompts) < BESIDE_TOKENS + 100
    outputs = way.executor.execute(prepared.prompts)
    found = [numbers(answer) for answer in way.finish(prepared, outputs).answers]
    assert close([found[27]], way.answers(STATE, {"x": many["q27"]}))


def test_too_long_question_is_refused_with_its_place(way):
    asked = {"q3": {"type": "noul", "instructions": "word " * 600}}
    with pytest.raises(InvalidRequest, match=r"question 'q3': .* 60\d tokens, limit 510"):
        way.result(STATE, asked)


def test_state_beside_questions_keeps_its_own_vector():
    executor = Way(WAYS["pair for noul"]).executor
    state, question = [101, 2000, 2001, 102], [101, 2005, 102]
    alone = executor.execute([MiniPrompt.of_text(state)])[0][0]
    beside = [(question, Readout.parse("prefix0")), (question, Readout.parse("prefix3"))]
    vectors = executor.execute([MiniPrompt.of_pair(state, beside)])[0]
    assert np.abs(vectors[0] - alone).max() < 1e-5
    assert np.abs(vectors[1] - vectors[2]).max() > 1e-3


def test_joint_state_and_question_see_each_other():
    executor = Way(WAYS["joint"]).executor
    state, question = [101, 2000, 2001, 102], [101, 2005, 102]
    pair = MiniPrompt.of_pair(state, [(question, Readout.parse("joint"))])
    alone, together = executor.execute([MiniPrompt.of_text(state), pair])
    assert np.abs(together[0] - alone[0]).max() > 1e-3


@pytest.mark.parametrize("name", ["", "pooling", "prefix6", "prefix", "joint3", "prefix0-double"])
def test_unknown_readout_is_refused(name):
    with pytest.raises(ValueError, match=f"readout '{name}': expected pooled"):
        Readout.parse(name)
