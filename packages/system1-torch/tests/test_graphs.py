"""Batches are replayed where a graph of their key exists, and run eagerly elsewhere."""

import pytest
import torch

from system1_torch.graphs import GraphCache, make_ladder, rung_of

BUDGET = 1 << 30


def doubled(key, inputs):
    return {"y": inputs["x"][:key] * 2}


def make_cache(device, budget_bytes=BUDGET):
    calls = []

    def run(key, inputs):
        calls.append(key)
        return doubled(key, inputs)

    device = torch.device(device)
    return GraphCache(run, device=device, budget_bytes=budget_bytes), calls


def test_without_a_graph_a_batch_runs_eagerly():
    cache, calls = make_cache("cpu")
    assert cache(3, {"x": torch.ones(4)})["y"].tolist() == [2, 2, 2]
    assert calls == [3]


def test_a_cpu_has_no_graphs():
    cache, calls = make_cache("cpu")
    assert not cache.capture(3, {"x": torch.ones(4)})
    assert 3 not in cache
    assert calls == []


@pytest.mark.gpu
def test_a_captured_key_is_replayed_on_new_values():
    cache, calls = make_cache("cuda")
    assert cache.capture(3, {"x": torch.zeros(4)})
    assert 3 in cache
    seen = len(calls)
    for value in (1.0, 5.0):
        out = cache(3, {"x": torch.full((4,), value)})
        assert out["y"].tolist() == [2 * value] * 3
    assert len(calls) == seen
    assert cache(2, {"x": torch.ones(4, device="cuda")})["y"].tolist() == [2, 2]
    assert calls[-1] == 2


@pytest.mark.gpu
def test_the_budget_ends_captures_but_not_service():
    cache, _ = make_cache("cuda", budget_bytes=1)
    assert cache.capture(4, {"x": torch.zeros(1 << 22)})
    assert cache.used_bytes > 1
    assert not cache.capture(3, {"x": torch.zeros(1 << 22)})
    assert cache(3, {"x": torch.ones(4, device="cuda")})["y"].tolist() == [2, 2, 2]
    assert cache.capture(4, {"x": torch.zeros(1 << 22)})


@pytest.mark.gpu
def test_inputs_may_be_freed_after_capture():
    cache, _ = make_cache("cuda")
    example = {"x": torch.ones(4, device="cuda")}
    cache.capture(4, example)
    example["x"].fill_(7)
    assert cache(4, {"x": torch.ones(4)})["y"].tolist() == [2, 2, 2, 2]


def test_a_ladder_pads_by_an_eighth_at_most():
    ladder = make_ladder(8192)
    assert ladder[:9] == [16, 32, 48, 64, 80, 96, 112, 128, 144]
    assert ladder[-1] == 8192
    assert ladder == sorted(set(ladder))
    for size in range(128, 8193):
        assert rung_of(size, ladder) <= size * 9 / 8


def test_the_limit_is_the_last_rung_even_between_two():
    ladder = make_ladder(500)
    assert ladder[-1] == 500
    assert rung_of(500, ladder) == 500
    assert rung_of(501, ladder) is None
    assert rung_of(1, ladder) == 16
