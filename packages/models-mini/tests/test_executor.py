"""Packing never changes a vector."""

import numpy as np
import pytest

from models_mini import executor as module
from models_mini.executor import PACK_TOKENS, make_packs, physical_cores
from models_mini.prompt import MiniPrompt


def prompts(*lengths, seed=0):
    draw = np.random.default_rng(seed).integers
    texts = [[101, *draw(1000, 20000, n - 2).tolist(), 102] for n in lengths]
    return [MiniPrompt.of_text(ids) for ids in texts]


def test_vectors_are_the_same_alone_and_packed(mini):
    texts = prompts(3, 8, 8, 40, 75, 128, 129, 300, 512, 2)
    together = mini.executor.execute(texts)
    for text, vector in zip(texts, together, strict=True):
        alone = mini.executor.execute([text])[0]
        assert np.abs(alone - vector).max() < 1e-5


def test_outputs_come_in_the_order_of_the_prompts(mini):
    texts = prompts(30, 5, 17)
    forward, backward = mini.executor.execute(texts), mini.executor.execute(texts[::-1])
    for one, other in zip(forward, backward[::-1], strict=True):
        assert np.abs(one - other).max() < 1e-5


def test_equal_prompts_run_once(mini, monkeypatch):
    ran = []
    run = mini.executor._run
    monkeypatch.setattr(mini.executor, "_run", lambda pack: ran.extend(pack) or run(pack))
    outputs = mini.executor.execute(prompts(9) * 5)
    assert len(ran) == 1
    assert len(outputs) == 5


def test_packs_hold_at_most_their_tokens_and_a_longer_text_alone():
    texts = [MiniPrompt.of_text([0] * n) for n in (60, 60, 60, 128, 129, 1)]
    assert [[one.num_tokens for one in pack] for pack in make_packs(texts)] == [
        [60, 60],
        [60],
        [128],
        [129],
        [1],
    ]
    assert PACK_TOKENS == 128


@pytest.mark.parametrize("threads", [1, 2])
def test_threads_are_as_asked_and_give_the_same_vectors(mini, new_mini, threads):
    other = new_mini(threads=threads).executor
    assert other.threads == threads
    texts = prompts(10, 75)
    for one, two in zip(mini.executor.execute(texts), other.execute(texts), strict=True):
        assert np.abs(one - two).max() < 1e-5


def test_hyper_threads_of_a_core_count_once(monkeypatch):
    monkeypatch.setattr(module.os, "sched_getaffinity", lambda pid: range(4), raising=False)
    monkeypatch.setattr(module, "_core", lambda cpu: f"{cpu % 2},{cpu % 2 + 2}")
    assert physical_cores() == 2
