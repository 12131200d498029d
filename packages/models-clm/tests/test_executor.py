"""What prompts cost, and what an executor is fit for."""

import os
import shutil

import numpy as np
import pytest
from conftest import ENCODER, HEADS

from models_clm.encoder import Encoder
from models_clm.executor import EncoderExecutor, ServerExecutor
from models_clm.heads import Heads
from models_clm.prompts import ScorePrompt, TextPrompt
from models_clm.scorer import Scorer
from models_clm.segments import MIN_SHARED
from system1_core import DependencyFailed


@pytest.fixture
def executor():
    return EncoderExecutor(Encoder.load(ENCODER), Scorer(Heads({})))


def text(*token_ids):
    return TextPrompt(token_ids, text="")


def question(*vectors, head="clm-raw"):
    state, *candidates = (np.array(vector, dtype=np.float32) for vector in vectors)
    texts = tuple(map(str, candidates))
    return ScorePrompt((), head=head, state=state, candidates=tuple(candidates), texts=texts)


def test_text_costs_its_tokens(executor):
    assert executor.cost([], text(1, 2, 3)) == 3
    assert executor.cost([text(1, 2)], text(1, 2, 3)) == 3


def test_text_that_begins_as_the_one_before_costs_its_rest(executor):
    prefix = range(MIN_SHARED)
    assert executor.cost([text(*prefix, 5)], text(*prefix, 6, 7)) == 2


def test_question_costs_its_rows(executor):
    assert executor.cost([], question([1], [1], [1])) == 3


def test_raw_cosines_have_scale_100(executor):
    (cosines,) = executor.execute([question([1, 0], [0.6, 0.8], [0, 1])])
    assert cosines.values == pytest.approx((0.6, 0))
    assert cosines.scale == 100


def test_questions_of_one_batch_do_not_mix(executor):
    found = executor.execute([question([1, 0], [1, 0]), question([0, 1], [1, 0], [0, 1])])
    assert [cosines.values for cosines in found] == [(1.0,), (0.0, 1.0)]


def test_closed_encoder_frees_its_weights(executor):
    executor.close()
    with pytest.raises(AssertionError, match="closed"):
        executor.execute([text(1)])


def test_server_executor_sends_32_texts_a_call_and_many_calls_at_once():
    assert ServerExecutor.max_batch_prompts == 32
    assert ServerExecutor.max_concurrent_batches >= 100


def test_kept_projections_change_no_answer_and_end_with_their_head(tmp_path):
    file = shutil.copy(HEADS / "clm_tiny.pt", tmp_path / "head.pt")
    vectors = np.random.default_rng(3).normal(size=(9, 64))
    asked = [question(vectors[0], *vectors[i:], head="head") for i in range(1, 9)]
    kept, plain = (Scorer(Heads({"head": file}), kept_projections=n) for n in (4, 0))
    for _ in range(2):
        for one in asked:
            (found,), (expected,) = kept.score([one]), plain.score([one])
            assert found.values == pytest.approx(expected.values, abs=1e-6)
    shutil.copy(HEADS / "clm_plain.pt", file)
    os.utime(file, (2_000_000_000, 2_000_000_000))
    (found,), (expected,) = kept.score(asked[:1]), plain.score(asked[:1])
    assert found.values == pytest.approx(expected.values, abs=1e-6)


def test_kept_projections_are_not_computed_again():
    heads = Heads({"head": HEADS / "clm_tiny.pt"})
    scorer = Scorer(heads)
    rows = []
    heads.current("head").network.action_head.register_forward_pre_hook(
        lambda module, inputs: rows.append(len(inputs[0]))
    )
    vectors = np.random.default_rng(3).normal(size=(4, 64))
    scorer.score([question(*vectors[:3], head="head")])
    scorer.score([question(vectors[3], *vectors[1:], head="head")])
    assert rows == [2, 1]


def test_embeddings_that_the_head_does_not_read_are_the_servers_fault():
    scorer = Scorer(Heads({"head": HEADS / "clm_tiny.pt"}))
    with pytest.raises(DependencyFailed, match="have 2 numbers, the head reads 64"):
        scorer.score([question([1, 0], [0, 1], head="head")])
