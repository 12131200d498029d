"""The tables of a packed tree against plain loops, with padding and without."""

import random

import pytest
import torch

from system1_torch.ops.gated_tree_attention import gated_tree_attention
from system1_torch.ops.tree_delta_rule import tree_delta_rule
from system1_torch.packed_tree import (
    CHUNK_ROWS,
    make_packed_tree,
    make_tables,
    num_chunks,
    tree_of,
)


def random_tree(seed):
    """Lengths and parents in order of depth, around the limits of a chunk."""
    draw = random.Random(seed)
    parents, level = [], [-1]
    for _ in range(draw.randint(1, 4)):
        begin = len(parents)
        parents += sorted(draw.choice(level) for _ in range(draw.randint(1, 6)))
        level = list(range(begin, len(parents)))
    near = (1, 2, 3, 63, 64, 65, 128, 129)
    return [draw.choice((*near, draw.randint(1, 200))) for _ in parents], parents


def device_only_tree():
    tables = make_tables([3, 2], [-1, 0], num_tokens=8, num_segments=4)
    return tree_of([], [], *map(torch.from_numpy, tables))


def slow_history(lengths, parents, width):
    """Each row's predecessors, by walking back one token at a time."""
    starts = [sum(lengths[:n]) for n in range(len(lengths))]
    rows = []
    for segment, length in enumerate(lengths):
        for place in range(length):
            at, found = (segment, place), []
            for _ in range(width):
                if at is not None:
                    owner, offset = at
                    if offset > 0:
                        at = (owner, offset - 1)
                    elif parents[owner] >= 0:
                        at = (parents[owner], lengths[parents[owner]] - 1)
                    else:
                        at = None
                found.append(-1 if at is None else starts[at[0]] + at[1])
            rows.append(found)
    return rows


def slow_chunks(lengths):
    """(segment, first row) of each run, and the first run of each segment."""
    chunks, firsts, row = [], [], 0
    for segment, length in enumerate(lengths):
        firsts.append(len(chunks))
        chunks += [[segment, row + begin] for begin in range(0, length, CHUNK_ROWS)]
        row += length
    return chunks, [*firsts, len(chunks)]


@pytest.mark.parametrize("seed", range(12))
def test_tables_are_those_of_plain_loops(seed):
    lengths, parents = random_tree(seed)
    tree = make_packed_tree(lengths, parents)
    chunks, firsts = slow_chunks(lengths)
    assert tree.cu_seqlens.tolist() == [sum(lengths[:n]) for n in range(len(lengths) + 1)]
    assert tree.parent_index.tolist() == parents
    assert tree.history.tolist() == slow_history(lengths, parents, 3)
    assert tree.chunks.tolist() == chunks
    assert tree.chunk_starts.tolist() == firsts
    int32 = (tree.cu_seqlens, tree.parent_index, tree.chunks, tree.chunk_starts)
    assert {table.dtype for table in int32} == {torch.int32}
    assert tree.history.dtype == torch.int64


@pytest.mark.parametrize("seed", range(12))
def test_padded_tables_begin_with_the_same_values_and_end_in_nothing(seed):
    lengths, parents = random_tree(seed)
    count, total = len(lengths), sum(lengths)
    plain = make_tables(lengths, parents)
    padded = make_tables(lengths, parents, num_tokens=total + 70, num_segments=count + 5)
    assert padded.cu_seqlens.tolist() == [*plain.cu_seqlens.tolist(), *[total] * 5]
    assert padded.parent_index.tolist() == [*parents, *[-1] * 5]
    assert padded.history[:total].tolist() == plain.history.tolist()
    assert (padded.history[total:] == -1).all()
    used = len(plain.chunks)
    assert len(padded.chunks) == num_chunks(total + 70, count + 5)
    assert padded.chunks[:used].tolist() == plain.chunks.tolist()
    assert (padded.chunks[used:] == -1).all()
    assert padded.chunk_starts.tolist() == [*plain.chunk_starts.tolist(), *[used] * 5]


@pytest.mark.parametrize("segments", [1, 3, 64])
def test_room_for_chunks_is_enough_for_the_worst_tree(segments):
    lengths = [1] * (segments - 1) + [500]
    worst = make_tables(lengths, [-1] * segments)
    assert len(worst.chunks) <= num_chunks(sum(lengths), segments)


def test_a_wider_history_goes_as_far_back():
    tree = make_packed_tree([2, 1, 3], [-1, 0, 1], history=5)
    assert tree.history[5].tolist() == [4, 3, 2, 1, 0]
    assert tree.history[0].tolist() == [-1] * 5


@pytest.mark.parametrize(
    "look",
    [
        lambda tree: tree.num_tokens,
        lambda tree: tree.num_segments,
        lambda tree: tree.rows(0),
        lambda tree: tree.ancestors(0),
    ],
    ids=["num_tokens", "num_segments", "rows", "ancestors"],
)
def test_a_tree_known_to_the_device_only_answers_no_question_of_the_host(look):
    with pytest.raises(RuntimeError, match="device only"):
        look(device_only_tree())


@pytest.mark.parametrize("rows", [None, torch.tensor([4])], ids=["all rows", "read rows"])
def test_no_reference_of_attention_runs_on_a_tree_known_to_the_device_only(rows):
    q = torch.ones(8 if rows is None else 1, 2, 4)
    k = torch.ones(8, 1, 4)
    with pytest.raises(RuntimeError, match="device only"):
        gated_tree_attention(q, k, k, q, device_only_tree(), rows)


def test_no_reference_of_the_delta_rule_runs_on_a_tree_known_to_the_device_only():
    q, v = torch.ones(8, 1, 4), torch.ones(8, 2, 4)
    with pytest.raises(RuntimeError, match="device only"):
        tree_delta_rule(q, q, v, torch.zeros(8, 2), torch.ones(8, 2), device_only_tree())
