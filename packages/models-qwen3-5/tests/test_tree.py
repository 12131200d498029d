"""One pass over a tree gives what each sequence gives alone."""

import random
from dataclasses import replace

import pytest
import torch
from PIL import ImageOps

from models_qwen3_5.backbone import Backbone, ImageSpan, Planner, Reads, SequencePrompt
from models_qwen3_5.images import decode_image, prepare_image, read_image_settings

TOLERANCE = 1e-4
EVERYTHING = Planner(min_saved=1)


def tokens(count, seed):
    return random.Random(seed).choices(range(430), k=count)


def prompt(token_ids, images=()):
    """Reads in the middle and at the end, all three kinds."""
    last = len(token_ids) - 1
    reads = Reads(
        hidden=(last, last // 2),
        logits=(last,),
        logit_ids=(32, 33, 40),
        logprobs=((last, 7), (last // 3, 9)),
    )
    return SequencePrompt(token_ids, reads=reads, images=images)


def with_planner(backbone, planner):
    return Backbone(backbone.config, backbone.text, backbone.vision, planner=planner)


def distance(found, expected):
    return max(
        (getattr(one, name) - getattr(other, name)).abs().max().item()
        for one, other in zip(found, expected, strict=True)
        for name in ("hidden", "logits", "logprobs")
    )


def check(backbone, prompts, num_segments=None, planner=EVERYTHING):
    shared = with_planner(backbone, planner)
    plan = planner.plan(prompts)
    if num_segments is not None:
        assert len(plan.segments) == num_segments
    alone = [backbone.forward([one])[0] for one in prompts]
    assert distance(shared.forward(prompts), alone) < TOLERANCE
    return plan


TREES = {
    "one level": ([tokens(20, 1), tokens(70, 2), tokens(1, 3)], 3),
    "two levels": ([[*tokens(50, 1), i, *tokens(3 + 7 * i, i)] for i in range(5)], 6),
    "three levels": (
        [[*tokens(40, 1), i, *tokens(9, i), j, *tokens(j, j)] for i in range(2) for j in range(3)],
        9,
    ),
    "a prefix of one token": ([[5, 1, 2, 3], [5, 2], [5, 3, 3]], 4),
    "a sequence that is another's prefix": ([tokens(30, 1), tokens(30, 1) + tokens(5, 2)], 2),
    "equal sequences": ([tokens(30, 1)] * 3, 1),
    "a prefix across chunks": ([tokens(130, 1) + tokens(n, n) for n in (1, 64, 65)], 4),
}


@pytest.mark.parametrize(("sequences", "num_segments"), TREES.values(), ids=TREES.keys())
def test_tree_equals_lone_sequences(backbone, sequences, num_segments):
    check(backbone, [prompt(one) for one in sequences], num_segments)


@pytest.mark.parametrize("cut", [1, 2, 3, 4, 37, 63, 64, 65, 70, 93])
def test_a_split_at_any_place_changes_nothing(backbone, cut):
    whole = tokens(94, 1)
    other = [*whole[:cut], (whole[cut] + 1) % 430, *whole[cut + 1 :]]
    check(backbone, [prompt(whole), prompt(other)], 3)


@pytest.fixture(scope="module")
def pictures(base, images):
    """Two pictures of one size, so that only their pixels tell them apart."""
    settings = read_image_settings(base)
    picture = decode_image((images / "small.png").read_bytes())
    return [prepare_image(each, settings) for each in (picture, ImageOps.invert(picture))]


def shown(backbone, before, picture, after):
    pad = [backbone.config.image_token_id] * picture.num_tokens
    return prompt(before + pad + after, (ImageSpan(len(before), picture),))


def test_an_image_in_the_prefix_is_shared(backbone, pictures):
    before = tokens(4, 1)
    prompts = [shown(backbone, before, pictures[0], tokens(5 + i, i)) for i in range(3)]
    check(backbone, prompts, 4)


def test_different_images_at_one_place_are_told_apart(backbone, pictures):
    before, after = tokens(4, 1), tokens(6, 2)
    prompts = [shown(backbone, before, picture, after) for picture in pictures]
    plan = check(backbone, prompts, 3)
    assert plan.segments[0].stop == 4
    one, other = backbone.forward(prompts)
    assert (one.logits - other.logits).abs().max() > 1e-3


def test_a_cut_never_falls_inside_an_image(backbone, pictures):
    before = tokens(5, 1)
    prompts = [shown(backbone, before, pictures[0], [i]) for i in range(3)]
    planner = Planner(min_saved=1, cut_multiple=4)
    plan = check(backbone, prompts, planner=planner)
    assert plan.segments[0].stop == 4


def test_a_placeholder_in_text_is_an_ordinary_token(backbone):
    pad = backbone.config.image_token_id
    check(backbone, [prompt([*tokens(9, 1), pad, pad, 5]), prompt([*tokens(9, 1), pad, 6])], 3)


def test_order_of_sequences_changes_nothing(backbone):
    shared = with_planner(backbone, EVERYTHING)
    prompts = [prompt(tokens(40, 1) + tokens(5 + i, i)) for i in range(6)]
    order = [3, 1, 5, 0, 4, 2]
    forwards = shared.forward(prompts)
    shuffled = shared.forward([prompts[i] for i in order])
    assert distance(shuffled, [forwards[i] for i in order]) < 1e-6


def test_strangers_in_the_batch_change_nothing(backbone):
    own = [prompt(tokens(40, 1) + tokens(5 + i, i)) for i in range(3)]
    strangers = [prompt(tokens(90, 8)), prompt(tokens(40, 1) + tokens(2, 9)), prompt([1])]
    alone = with_planner(backbone, EVERYTHING).forward(own)
    together = with_planner(backbone, EVERYTHING).forward([strangers[0], *own, *strangers[1:]])
    assert distance(together[1:4], alone) < TOLERANCE


@pytest.mark.parametrize("seed", range(4))
def test_random_trees_equal_lone_sequences(backbone, seed):
    chance = random.Random(seed)
    sequences = [tokens(chance.randint(1, 30), seed)]
    for _ in range(9):
        stem = chance.choice(sequences)
        kept = stem[: chance.randint(0, len(stem))]
        sequences.append([*kept, *tokens(chance.randint(not kept, 25), chance.random())])
    planner = Planner(min_saved=chance.choice([1, 8]), cut_multiple=chance.choice([1, 4]))
    check(backbone, [prompt(one) for one in sequences], planner=planner)


def test_the_last_layer_computes_read_rows_only(backbone):
    seen = []

    def attention(q, k, v, gate, tree, rows=None):
        seen.append((q.shape[0], k.shape[0]))
        return backbone.ops.gated_tree_attention(q, k, v, gate, tree, rows)

    ops = replace(backbone.ops, gated_tree_attention=attention)
    counted = Backbone(backbone.config, backbone.text, ops=ops)
    counted.forward([SequencePrompt(tokens(50, 1), reads=Reads(hidden=(49,)))])
    assert seen == [(50, 50), (1, 50)]


def test_logprobs_are_those_of_all_logits(backbone):
    token_ids = tokens(12, 1)
    reads = Reads(logits=(3, 11), logit_ids=tuple(range(512)), logprobs=((11, 5), (3, 0), (3, 9)))
    (readout,) = backbone.forward([SequencePrompt(token_ids, reads=reads)])
    whole = readout.logits.log_softmax(-1)
    expected = torch.stack([whole[1, 5], whole[0, 0], whole[0, 9]])
    assert (readout.logprobs - expected).abs().max() < 1e-5
