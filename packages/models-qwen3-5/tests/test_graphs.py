"""Which shapes have graphs, when they are captured, and that a replay reads the same."""

import random
from dataclasses import replace

import pytest
import torch

from models_qwen3_5.backbone import Backbone, Reads, SequencePrompt
from models_qwen3_5.graphs import COUNTS, LADDERS, TextGraphs
from models_qwen3_5.passes import make_table, padded_shape, take_apart
from models_qwen3_5.planner import Planner


def prompts_of(seed, count=5):
    """Sequences that share a stem, or parts of it."""
    draw = random.Random(seed)
    stem = [draw.randrange(200) for _ in range(draw.randint(20, 90))]
    found = []
    for _ in range(count):
        own = [draw.randrange(200) for _ in range(draw.randint(1, 70))]
        tokens = stem[: draw.choice([0, len(stem) // 2, len(stem)])] + own
        found.append(SequencePrompt(tokens, reads=Reads(hidden=(len(tokens) - 1,))))
    return found


def test_a_padded_table_keeps_rows_behind_the_end_out_of_every_segment():
    prompts = prompts_of(3)
    plan = Planner().plan(prompts)
    shape = padded_shape(plan.num_tokens + 40, len(plan.segments) + 2, 8)
    inputs = take_apart(make_table(plan, prompts, [4, 7], shape, 3), shape, 3)
    tree = inputs.tree
    assert tree.cu_seqlens[-3:].tolist() == [plan.num_tokens] * 3
    assert tree.parent_index[-2:].tolist() == [-1, -1]
    assert (tree.history[plan.num_tokens :] == -1).all()
    chunks = tree.chunks[: int(tree.chunk_starts[-1])]
    assert (chunks[:, 1] < plan.num_tokens).all()
    assert (tree.chunks[int(tree.chunk_starts[-1]) :] == -1).all()
    assert inputs.rows.tolist() == [4, 7, 0, 0, 0, 0, 0, 0]
    with pytest.raises(RuntimeError, match="device only"):
        _ = tree.num_tokens


@pytest.mark.parametrize("tokens", [16, 64, 128, 1000])
def test_a_lone_prompt_of_a_rungs_length_fits_it(tokens):
    prompt = SequencePrompt([0] * tokens, reads=Reads(hidden=(0,)))
    plan = Planner().plan([prompt])
    shape = padded_shape(tokens, 1, 1)
    assert make_table(plan, [prompt], [0], shape, 3).numel() == sum(shape.sizes(3))


def test_ladders_rise_and_pad_little():
    for ladder in LADDERS.values():
        assert ladder == sorted(set(ladder))
    steps = [b - a for a, b in zip(LADDERS[1], LADDERS[1][1:], strict=False)]
    assert all(step <= max(16, rung // 8) for rung, step in zip(LADDERS[1], steps, strict=False))


def test_what_has_no_graph_is_not_found():
    graphs = TextGraphs(lambda shape, inputs: {}, torch.device("cpu"))
    assert graphs.find(10, 1, 1, has_images=False) is None
    assert graphs.find(10, COUNTS[-1] + 1, 1, has_images=False) is None


def test_a_capture_that_fails_ends_captures_and_says_so(caplog):
    graphs = TextGraphs(lambda shape, inputs: {}, torch.device("cpu"))
    graphs.plan(has_images=False)

    def fails(shape, has_images):
        raise RuntimeError("no such operation in a graph")

    assert not graphs.capture_next(fails)
    assert not graphs.capture_next(fails)
    assert caplog.text.count("no more CUDA graphs") == 1
    assert "no such operation" in caplog.text


def test_a_shape_too_large_for_the_memory_leaves_the_smaller_ones(caplog):
    graphs = TextGraphs(lambda shape, inputs: {}, torch.device("cpu"))
    graphs._pending = [(padded_shape(tokens, 1, 1), False) for tokens in (512, 2048, 512, 192)]

    def too_large(shape, has_images):
        raise torch.OutOfMemoryError("full")

    assert graphs.capture_next(too_large)
    assert [shape.tokens for shape, _ in graphs._pending] == [192]
    assert not graphs.capture_next(too_large)
    assert "512 tokens and more" in caplog.text


def test_every_projection_is_tuned_at_every_row_count(backbone):
    calls = []

    def tune_linear(weights, row_counts):
        calls.append((weights, row_counts))

    ops = replace(backbone.ops, tune_linear=tune_linear)
    tuned = Backbone(backbone.config, backbone.text, ops=ops)
    tuned.graphs = TextGraphs(tuned._run, tuned.device)
    tuned.capture_graphs(0)
    ((projections, row_counts),) = calls
    assert projections == list(backbone.text.projections())
    assert row_counts == sorted({rung for ladder in LADDERS.values() for rung in ladder})


def test_without_graphs_nothing_is_captured_or_tuned(backbone):
    ops = replace(backbone.ops, tune_linear=lambda weights, row_counts: pytest.fail("tuned"))
    plain = Backbone(backbone.config, backbone.text, ops=ops)
    assert plain.graphs is None
    assert plain.capture_graphs(1) == 0
    assert not plain.capture_next()


@pytest.mark.gpu
@pytest.mark.parametrize("seed", range(8))
def test_a_graph_reads_what_an_eager_pass_reads(base, seed):
    from models_qwen3_5.checkpoint import load_backbone
    from models_qwen3_5.ops import ops_of

    plugin = pytest.importorskip("system1_cuda.plugin")
    loaded = load_backbone(
        base, device=torch.device("cuda"), dtype=torch.bfloat16, ops=ops_of(plugin.CudaBackend())
    )
    prompts = prompts_of(seed)
    graphs, loaded.graphs = loaded.graphs, None
    expected = torch.cat([readout.hidden for readout in loaded.forward(prompts)])
    loaded.graphs = graphs
    graphs.plan(has_images=False)
    while graphs.capture_next(loaded._example):
        pass
    shapes = []
    replay = graphs.replay
    graphs.replay = lambda shape, inputs: shapes.append(shape) or replay(shape, inputs)
    found = torch.cat([readout.hidden for readout in loaded.forward(prompts)])
    loaded.close()
    assert len(shapes) == 1
    torch.testing.assert_close(found, expected, atol=0.1, rtol=0.05)
