"""Packing: beginnings are laid down once, and every row is covered."""

import pytest

from models_clm.segments import BLOCK_ROWS, MIN_SHARED, pack, shared_length

PREFIX = list(range(100, 100 + MIN_SHARED))


def rows_covered(packed):
    return [row for block in packed.blocks for row in range(block.begin, block.end)]


@pytest.mark.parametrize(
    ("one", "other", "length"),
    [
        ([*PREFIX, 1], [*PREFIX, 2], MIN_SHARED),
        ([*PREFIX, 1, 2, 3], [*PREFIX, 1, 2, 4], MIN_SHARED + 2),
        ([*PREFIX, 7], [*PREFIX, 7], MIN_SHARED),
        ([*PREFIX, 7, 8], [*PREFIX, 7], MIN_SHARED),
        (PREFIX, PREFIX, 0),
        ([*PREFIX[:-1], 0, 0], [*PREFIX[:-1], 1, 0], 0),
        ([1], [2], 0),
    ],
)
def test_shared_length_leaves_a_token_of_each(one, other, length):
    assert shared_length(one, other) == length
    assert shared_length(other, one) == length


def test_sequences_without_a_common_beginning_are_laid_end_to_end():
    packed = pack([[5, 6], [1, 2, 3], [4]])
    assert packed.token_ids.shape == (6,)
    assert packed.token_ids[packed.reads].tolist() == [6, 3, 4]
    assert packed.positions[packed.reads].tolist() == [1, 2, 0]
    assert rows_covered(packed) == list(range(6))


def test_common_beginning_is_laid_down_once():
    packed = pack([[*PREFIX, 1, 2], [*PREFIX, 3], [9]])
    assert packed.token_ids.numel() == MIN_SHARED + 3 + 1
    assert packed.token_ids[packed.reads].tolist() == [2, 3, 9]
    assert packed.positions[packed.reads].tolist() == [MIN_SHARED + 1, MIN_SHARED, 0]
    assert rows_covered(packed) == list(range(packed.token_ids.numel()))


def test_equal_sequences_share_all_but_the_last_token():
    packed = pack([[*PREFIX, 1]] * 3)
    assert packed.token_ids.numel() == MIN_SHARED + 3


def test_group_does_not_give_up_a_long_beginning_for_a_short_one():
    long = [*PREFIX, *range(900)]
    packed = pack([[*long, 1], [*long, 2], [*PREFIX, 5]])
    assert packed.token_ids.numel() == len(long) + 2 + MIN_SHARED + 1


def test_blocks_of_short_sequences_are_bounded():
    packed = pack([[1] * 100 for _ in range(20)])
    assert all(block.end - block.begin <= BLOCK_ROWS for block in packed.blocks)


def test_lone_long_sequence_needs_no_mask():
    (block,) = pack([list(range(2000))]).blocks
    assert block.mask is None
