"""Padded batches give the answers of exact ones; batches without a graph run eagerly."""

import random

import pytest
import torch

from models_laya.checkpoint import tensor_shapes
from models_laya.config import EncoderConfig, LayaConfig, Temperatures
from models_laya.executor import LayaExecutor
from models_laya.graphs import LADDERS, MAX_SEQLEN, LayaGraphs, Shape, make_table, shape_of
from models_laya.model import LayaModel
from models_laya.ops import LayaOps
from models_laya.tokens import LayaPrompt
from system1_torch.ops.local_attention import local_attention

WIDTH, VOCABULARY = 128, 300
BATCHES = {
    "one-short": [9],
    "one-exact-rung": [48],
    "one-longest": [512],
    "two": [20, 31],
    "ragged": [5, 140, 64, 12, 300],
    "twenty": [13] * 20,
}


def make_model(ops=None, device="cpu", dtype=torch.float32):
    """Two heads of 64, four encoder layers, two decision layers, random weights."""
    encoder = EncoderConfig(
        hidden_size=WIDTH,
        num_hidden_layers=4,
        num_attention_heads=2,
        intermediate_size=192,
        vocab_size=VOCABULARY,
        local_attention=16,
        norm_eps=1e-5,
        is_full=(True, False, False, True),
        full_theta=160_000.0,
        local_theta=10_000.0,
    )
    config = LayaConfig(
        encoder=encoder,
        head_layers=2,
        num_actions=2,
        max_len=512,
        head_max_len=192,
        temperatures=Temperatures(by_bucket={}),
    )
    shapes, generator = tensor_shapes(config), torch.Generator().manual_seed(0)

    def take(name, wanted):
        shape = shapes[name]
        tensor = torch.randn(shape, generator=generator) * 0.1
        is_gain = len(shape) == 1 and name.endswith("weight")
        return (tensor + is_gain).to(device, wanted or torch.float32)

    return LayaModel(config, take, ops or LayaOps(), dtype)


def make_prompts(lengths, seed=0):
    rng = random.Random(seed)
    prompts = []
    for length in lengths:
        markers = sorted(rng.sample(range(1, length), min(4, length // 3)))
        ids = [rng.randrange(VOCABULARY) for _ in range(length)]
        prompts.append(
            LayaPrompt(tuple(ids), batch_key="m", markers=tuple(markers), type_id=rng.randrange(3))
        )
    return prompts


def assert_close(found, expected, tolerance=1e-5):
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        assert one.logits == pytest.approx(other.logits, abs=tolerance)
        assert one.act_logits == pytest.approx(other.act_logits, abs=tolerance)


@pytest.fixture(scope="module")
def model():
    torch.set_num_threads(1)
    with torch.inference_mode():
        return make_model()


@pytest.mark.parametrize("lengths", BATCHES.values(), ids=BATCHES)
def test_a_padded_batch_answers_like_the_exact_one(model, lengths):
    prompts = make_prompts(lengths)
    with torch.inference_mode():
        found = LayaGraphs(model).read(prompts, shape_of(prompts))
    assert_close(found, LayaExecutor({"m": model}).execute(prompts))


def test_rows_that_belong_to_no_prompt_may_hold_anything():
    def poisoned(q, k, v, cu_seqlens, max_seqlen, window):
        out = local_attention(q, k, v, cu_seqlens, max_seqlen, window)
        out[cu_seqlens[-1] :] = torch.nan
        return out

    with torch.inference_mode():
        model = make_model(LayaOps(local_attention=poisoned))
        prompts = make_prompts([30, 21, 50])
        found = LayaGraphs(model).read(prompts, shape_of(prompts))
    assert_close(found, LayaExecutor({"m": model}).execute(prompts))


def test_padding_is_told_apart_from_tokens(model):
    prompts = make_prompts([30, 21, 50])
    graphs, shape = LayaGraphs(model), shape_of(prompts)
    clean = make_table(prompts, shape)
    dirty = clean.clone()
    dirty[101 : shape.tokens] = VOCABULARY - 1
    with torch.inference_mode():
        answers = [graphs._run(shape, {"table": table})["answers"] for table in (clean, dirty)]
    used = sum(len(prompt.markers) for prompt in prompts)
    assert answers[0][:used].tolist() == answers[1][:used].tolist()


def test_answers_are_the_same_alone_and_in_one_padded_batch(model):
    prompts = make_prompts([30, 21, 50, 8])
    graphs = LayaGraphs(model)
    with torch.inference_mode():
        together = graphs.read(prompts, shape_of(prompts))
        alone = [graphs.read([prompt], shape_of([prompt]))[0] for prompt in prompts]
    assert_close(together, alone)


def test_the_table_holds_every_part_padded_to_its_size():
    prompts = [
        LayaPrompt((7, 8, 9), batch_key="m", markers=(1, 2), type_id=2),
        LayaPrompt((5, 6), batch_key="m", markers=(1,), type_id=1),
    ]
    shape = Shape(tokens=8, sequences=4)
    ids, positions, types, bounds, markers, firsts = make_table(prompts, shape).split(shape.sizes)
    assert ids.tolist() == [7, 8, 9, 5, 6, 0, 0, 0]
    assert positions.tolist() == [0, 1, 2, 0, 1, 0, 0, 0]
    assert types.tolist() == [2, 2, 2, 1, 1, 0, 0, 0]
    assert bounds.tolist() == [0, 3, 5, 5, 5]
    assert markers.tolist() == [1, 2, 4, 0]
    assert firsts.tolist() == [0, 3, 0, 0]


@pytest.mark.parametrize("count", [1, 2, 3, 7, 16, 17, 64])
def test_a_shape_holds_its_batch(count):
    prompts = make_prompts([random.Random(count).randrange(6, 100) for _ in range(count)])
    shape = shape_of(prompts)
    assert shape.sequences >= count
    assert shape.tokens in LADDERS[shape.sequences]
    assert shape.tokens >= sum(prompt.num_tokens for prompt in prompts)
    assert shape.reads >= sum(len(prompt.markers) for prompt in prompts)
    assert shape.max_seqlen >= max(prompt.num_tokens for prompt in prompts)


def test_no_shape_is_meant_for_batches_that_are_too_long_or_read_too_much():
    assert shape_of(make_prompts([MAX_SEQLEN + 1])) is None
    assert shape_of(make_prompts([10] * 65)) is None
    assert shape_of(make_prompts([300] * 40)) is None
    many = LayaPrompt((0,) * 20, batch_key="m", markers=tuple(range(1, 19)), type_id=0)
    assert shape_of([many]) is None


def test_a_cpu_captures_nothing_and_a_miss_runs_eagerly(model):
    graphs = LayaGraphs(model)
    assert graphs.find(make_prompts([20])) is None
    assert graphs.capture() == 0
    assert graphs.find(make_prompts([20])) is None
    prompts = make_prompts([20, 30])
    executor = LayaExecutor({"m": model}, graphs={"m": graphs})
    assert executor.execute(prompts) == LayaExecutor({"m": model}).execute(prompts)


def test_the_executor_asks_the_graphs_of_the_batchs_checkpoint(model):
    class Captured(LayaGraphs):
        def find(self, prompts):
            return shape_of(prompts)

        def read(self, prompts, shape):
            seen.append(shape)
            return super().read(prompts, shape)

    seen = []
    executor = LayaExecutor({"m": model}, graphs={"m": Captured(model)})
    executor.execute(make_prompts([20, 30]))
    assert seen == [Shape(64, 4)]


@pytest.fixture(scope="module", params=["float32", "bfloat16"])
def on_device(request):
    """(executor without graphs, with graphs, the graphs, tolerance) on a CUDA device."""
    pytest.importorskip("system1_cuda")
    from system1_cuda.build import load_kernels
    from system1_cuda.offered import OPS

    load_kernels()
    with torch.inference_mode():
        model = make_model(LayaOps.of(OPS), "cuda", getattr(torch, request.param))
    graphs = LayaGraphs(model)
    executor = LayaExecutor({"m": model}, graphs={"m": graphs})
    executor.warmup()
    tolerance = 1e-4 if request.param == "float32" else 5e-2
    return LayaExecutor({"m": model}), executor, graphs, tolerance


@pytest.mark.gpu
@pytest.mark.parametrize("lengths", BATCHES.values(), ids=BATCHES)
def test_a_replay_answers_like_the_eager_network(on_device, lengths):
    eager, graphed, graphs, tolerance = on_device
    for seed in range(3):
        prompts = make_prompts(lengths, seed)
        assert graphs.find(prompts) is not None
        assert_close(graphed.execute(prompts), eager.execute(prompts), tolerance)


@pytest.mark.gpu
def test_replays_answer_the_same_alone_and_batched(on_device):
    _, graphed, _, tolerance = on_device
    prompts = make_prompts([30, 21, 500, 8, 77] * 4)
    alone = [graphed.execute([prompt])[0] for prompt in prompts]
    assert_close(graphed.execute(prompts), alone, tolerance)
    assert_close(graphed.execute(prompts[::-1])[::-1], alone, tolerance)


@pytest.mark.gpu
def test_longer_prompts_run_eagerly_and_leave_the_graphs_alone(on_device):
    eager, graphed, graphs, tolerance = on_device
    short, long = make_prompts([40]), make_prompts([700])
    before = graphed.execute(short)
    assert graphs.find(long) is None
    assert_close(graphed.execute(long), eager.execute(long), tolerance)
    assert graphed.execute(short) == before


@pytest.mark.gpu
def test_without_a_budget_nothing_is_captured(on_device):
    *_, graphs, _ = on_device
    bare = LayaGraphs(graphs._model, budget_bytes=0)
    assert bare.capture() == 0
    assert graphs.used_bytes > 0
