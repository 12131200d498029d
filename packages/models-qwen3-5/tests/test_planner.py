"""What is shared, and where it is cut."""

import random

import pytest

from models_qwen3_5.planner import Planner
from models_qwen3_5.sequence import Reads, SequencePrompt


def plan(sequences, **rules):
    prompts = [SequencePrompt(one, reads=Reads()) for one in sequences]
    return Planner(**rules).plan(prompts)


def spelled(plan, sequences):
    """Each sequence, put together again from its path."""
    return [
        [
            token
            for index in path
            for token in sequences[plan.segments[index].owner][
                plan.segments[index].start : plan.segments[index].stop
            ]
        ]
        for path in plan.paths
    ]


def token_at(plan, sequences, row):
    """The token that a packed row holds."""
    for start, segment in zip(plan.starts, plan.segments, strict=False):
        if start <= row < start + segment.stop - segment.start:
            return sequences[segment.owner][segment.start + row - start]
    raise AssertionError(f"row {row} is in no segment")


def test_a_lone_sequence_is_one_segment():
    assert len(plan([[1, 2, 3]], min_saved=1).segments) == 1


def test_every_sequence_is_the_sum_of_its_path():
    sequences = [[1, 2, 3, 4], [1, 2], [1, 2, 3, 9, 9], [7], [1, 2, 3, 4, 4], [1, 2]]
    found = plan(sequences, min_saved=1)
    assert spelled(found, sequences) == sequences
    assert found.num_tokens == 8


def test_segments_come_in_order_of_depth_behind_their_parents():
    found = plan([[1, 1, 1], [1, 1, 2], [1, 3], [2, 2], [2, 3]], min_saved=1)
    depths = []
    for index, segment in enumerate(found.segments):
        assert segment.parent < index
        depths.append(0 if segment.parent < 0 else depths[segment.parent] + 1)
    assert depths == sorted(depths)


def test_the_order_of_sequences_changes_neither_sharing_nor_what_they_hold():
    draw = random.Random(0)
    stems = [draw.choices(range(300_000), k=draw.randint(1, 9)) for _ in range(6)]
    sequences = [
        [
            *draw.choice(stems),
            *draw.choice(stems),
            *draw.choices((1, 256, 257), k=draw.randint(0, 2)),
        ]
        for _ in range(60)
    ]
    expected = plan(sequences, min_saved=1).num_tokens
    assert expected == len({tuple(each[:n]) for each in sequences for n in range(1, len(each) + 1)})
    for _ in range(5):
        draw.shuffle(sequences)
        found = plan(sequences, min_saved=1)
        assert spelled(found, sequences) == sequences
        assert found.num_tokens == expected


def test_too_little_to_save_is_not_shared():
    sequences = [[1] * 10 + [i] for i in range(3)]
    assert len(plan(sequences, min_saved=21).segments) == 3
    assert len(plan(sequences, min_saved=20).segments) == 4


def test_a_stem_too_short_for_all_may_be_long_enough_for_some():
    sequences = [[1, 5], [1, *[2] * 40, 3], [1, *[2] * 40, 4]]
    found = plan(sequences, min_saved=30)
    assert found.segments[1].stop == 41 or found.segments[0].stop == 41
    assert spelled(found, sequences) == sequences


def test_cuts_fall_on_multiples_of_64_if_asked():
    sequences = [[1] * 100 + [i] for i in range(3)]
    found = plan(sequences, min_saved=1, cut_multiple=64)
    assert found.segments[0].stop == 64
    assert spelled(found, sequences) == sequences


def test_a_position_is_found_in_the_segment_that_holds_it():
    found = plan([[1, 2, 3], [1, 2, 4]], min_saved=1)
    assert found.row(0, 0) == found.row(1, 0) == 0
    assert {found.row(0, 2), found.row(1, 2)} == {2, 3}
    with pytest.raises(IndexError):
        found.row(0, 3)


def test_rows_of_positions_are_those_of_their_segments():
    stem = list(range(40))
    sequences = [[*stem, 50 + index, *range(index)] for index in range(3)]
    found = plan(sequences)
    for index, each in enumerate(sequences):
        rows = found.rows(index, range(len(each)))
        assert [token_at(found, sequences, row) for row in rows.values()] == each
        assert rows == {at: found.row(index, at) for at in range(len(each))}
    with pytest.raises(IndexError, match="position 99 is not in sequence 0"):
        found.rows(0, (3, 99))
