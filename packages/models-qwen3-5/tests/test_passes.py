"""What a graph holds, run eagerly: padded inputs, and NaN in every row that nothing may read."""

import random
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import ImageOps

from models_qwen3_5.backbone import Backbone, ImageSpan, Planner, Reads, SequencePrompt
from models_qwen3_5.graphs import TextGraphs
from models_qwen3_5.images import decode_image, prepare_image, read_image_settings
from models_qwen3_5.passes import exact_shape, make_table, padded_shape, take_apart
from models_qwen3_5.rope import make_positions
from system1_torch.packed_tree import make_packed_tree, make_tables

NAN = float("nan")


def prompt_of(token_ids, images=()):
    """All three kinds of reads, in the middle and at the end."""
    last = len(token_ids) - 1
    reads = Reads(
        hidden=(last, last // 2),
        logits=(last,),
        logit_ids=(32, 33, 40),
        logprobs=((last, 7), (last // 3, 9)),
    )
    return SequencePrompt(token_ids, reads=reads, images=images)


def prompts_of(seed, count):
    """Sequences that share a stem, or half of it, or nothing."""
    draw = random.Random(seed)
    stem = draw.choices(range(430), k=draw.randint(20, 90))
    kept = [stem[: draw.choice([0, len(stem) // 2, len(stem)])] for _ in range(count)]
    return [prompt_of([*part, *draw.choices(range(430), k=draw.randint(1, 70))]) for part in kept]


@pytest.fixture(scope="module")
def pictures(base, images):
    settings = read_image_settings(base)
    picture = decode_image((images / "small.png").read_bytes())
    return [prepare_image(each, settings) for each in (picture, ImageOps.invert(picture))]


def shown(backbone, seed, picture, behind):
    draw = random.Random(seed)
    pad = [backbone.config.image_token_id] * picture.num_tokens
    before = draw.choices(range(430), k=4)
    return prompt_of([*before, *pad, *behind], (ImageSpan(4, picture),))


def host_tree(tree):
    """The tree that padded tables hold, known to the host, and its real row count."""
    lengths = tree.cu_seqlens.unique_consecutive().diff().tolist()
    parents = tree.parent_index[: len(lengths)].tolist()
    return make_packed_tree(lengths, parents), int(tree.cu_seqlens[-1])


def behind_end(out, count):
    """`out` with NaN in the rows that belong to no segment."""
    whole = out.new_full((count, *out.shape[1:]), NAN)
    whole[: len(out)] = out
    return whole


def poisoned(ops):
    """The references, on padded tables, leaving NaN where kernels leave what was there."""

    def delta_inputs(qkv, b, a, conv, A_log, dt_bias, tree, heads, width):
        _, real = host_tree(tree)
        found = ops.delta_inputs(qkv, b, a, conv, A_log, dt_bias, tree, heads, width)
        return tuple(behind_end(x[:real], len(x)) for x in found)

    def tree_delta_rule(*given):
        *operands, tree = given
        host, real = host_tree(tree)
        out = ops.tree_delta_rule(*(x[:real] for x in operands), host)
        return behind_end(out, len(operands[0]))

    def gated_tree_attention(q, k, v, gate, tree, rows=None):
        host, real = host_tree(tree)
        if rows is None:
            out = ops.gated_tree_attention(q[:real], k[:real], v[:real], gate[:real], host)
            return behind_end(out, len(q))
        # The reference takes each row once, in order.
        once, place = rows.unique(return_inverse=True)
        first = torch.stack([(rows == row).nonzero()[0, 0] for row in once])
        out = ops.gated_tree_attention(q[first], k[:real], v[:real], gate[first], host, once)
        return out[place]

    return replace(
        ops,
        delta_inputs=delta_inputs,
        tree_delta_rule=tree_delta_rule,
        gated_tree_attention=gated_tree_attention,
    )


class AllCaptured:
    """Every shape has its graph, which is run on the spot."""

    def __init__(self, run):
        self.run, self.keys = run, []

    def __contains__(self, key):
        return True

    def __call__(self, key, inputs):
        self.keys.append(key)
        shape, has_images = key
        assert has_images == ("embeds" in inputs)
        if has_images:
            given = take_apart(inputs["table"], shape, 3)
            embeds = inputs["embeds"].clone()
            embeds[int(given.tree.cu_seqlens[-1]) :] = NAN
            inputs = {**inputs, "embeds": embeds}
        return self.run(shape, inputs)


def in_graphs(backbone):
    """The backbone over the same weights, all its passes padded; and the keys it used."""
    ops, planner = poisoned(backbone.ops), backbone.planner
    padded = Backbone(backbone.config, backbone.text, backbone.vision, ops=ops, planner=planner)
    padded.graphs = TextGraphs(padded._run, padded.device)
    padded.graphs._cache = AllCaptured(padded._run)
    return padded, padded.graphs._cache.keys


def check(backbone, prompts):
    """The padded pass reads what the plain one reads; returns the key it used."""
    padded, keys = in_graphs(backbone)
    found, expected = padded.forward(prompts), backbone.forward(prompts)
    for one, other in zip(found, expected, strict=True):
        for name in ("hidden", "logits", "logprobs"):
            torch.testing.assert_close(getattr(one, name), getattr(other, name), atol=1e-4, rtol=0)
    (key,) = keys
    return key


@pytest.mark.parametrize("count", [1, 2, 3, 15])
@pytest.mark.parametrize("seed", range(3))
def test_a_padded_pass_reads_what_a_plain_one_reads(backbone, seed, count):
    _, has_images = check(backbone, prompts_of(seed, count))
    assert not has_images


def test_a_pass_that_fills_its_shape_reads_the_same(backbone):
    draw = random.Random(0)
    shape, _ = check(backbone, [prompt_of(draw.choices(range(430), k=64))])
    assert shape.tokens == 64


def test_a_padded_pass_with_images_reads_what_a_plain_one_reads(backbone, pictures):
    prompts = [
        *(shown(backbone, 1, pictures[0], [seed, 5, seed]) for seed in range(3)),
        shown(backbone, 1, pictures[1], [7]),
        *prompts_of(2, 2),
    ]
    _, has_images = check(backbone, prompts)
    assert has_images


def test_a_pass_beyond_all_shapes_runs_without_a_graph(backbone):
    padded, keys = in_graphs(backbone)
    padded.ops = backbone.ops
    many = [prompt_of([n % 430, n // 430, 3]) for n in range(300)]
    assert len(padded.forward(many)) == 300
    assert keys == []


@pytest.mark.parametrize("seed", range(4))
def test_the_table_holds_each_segments_tokens_and_positions(backbone, pictures, seed):
    draw = random.Random(seed)
    behind = [draw.choices(range(430), k=draw.randint(1, 9)) for _ in range(5)]
    prompts = [shown(backbone, 1, draw.choice(pictures), each) for each in behind]
    prompts += prompts_of(seed, 4)
    plan = Planner(min_saved=1).plan(prompts)
    shape = exact_shape(plan, 1)
    inputs = take_apart(make_table(plan, prompts, [0], shape, 3), shape, 3)
    for index, segment in enumerate(plan.segments):
        owner = prompts[segment.owner]
        rows = slice(plan.starts[index], plan.starts[index + 1])
        own = slice(segment.start, segment.stop)
        expected = make_positions(owner.num_tokens, owner.images)[:, own]
        assert inputs.token_ids[rows].tolist() == owner.token_ids[own]
        assert np.array_equal(inputs.positions[:, rows].numpy(), expected)


@pytest.mark.parametrize("count", [1, 63, 64, 65, 200])
@pytest.mark.parametrize("room", [None, (0, 0), (70, 3)], ids=str)
def test_the_tables_of_a_lone_sequence_are_those_of_its_tree(count, room):
    prompt = prompt_of(random.Random(count).choices(range(430), k=count))
    plan = Planner().plan([prompt])
    if room is None:
        shape, sizes = exact_shape(plan, 1), {}
    else:
        shape = padded_shape(count + room[0], 1 + room[1], 1)
        sizes = {"num_tokens": shape.tokens, "num_segments": shape.segments}
    parts = make_table(plan, [prompt], [count - 1], shape, 3).split(shape.sizes(3))
    for part, expected in zip(parts[2:7], make_tables([count], [-1], **sizes), strict=True):
        assert np.array_equal(part.numpy(), expected.ravel())
    assert parts[0][:count].tolist() == prompt.token_ids
    assert parts[7].tolist() == [count - 1]
