"""The arithmetic behind the heads, on hand-made values."""

import math

import numpy as np
import pytest

from models_omnijev.calibration import Calibration, confidence, scaled
from models_omnijev.features import lm_features
from models_omnijev.heads import OptionScorer, RowOutput, level_probabilities

PLAIN = Calibration()


def test_scaling_by_one_is_the_identity():
    assert scaled([0.2, 0.3], 1 + 1e-7) == [0.2, 0.3]


def test_scaling_lifts_zero_off_the_floor():
    low, high = scaled([0.0, 1.0], 2.0)
    assert low == pytest.approx(math.sqrt(1e-9) / (1 + math.sqrt(1e-9)))
    assert high == pytest.approx(1 - low)


def test_the_bias_of_a_noul_comes_before_its_temperature():
    biased = Calibration(temperatures={"noul": 2.0}, biases={"noul": 1.0})
    p = 1 / (1 + math.exp(-1.0))
    expected = math.sqrt(p) / (math.sqrt(p) + math.sqrt(1 - p))
    assert biased.noul(0.5) == pytest.approx(expected)


def test_a_certain_noul_stays_finite():
    biased = Calibration(temperatures={"noul": 1.2}, biases={"noul": 0.05})
    assert 0 < biased.noul(0.0) < 1e-6
    assert 1 - 1e-6 < biased.noul(1.0) < 1


def test_a_type_without_a_temperature_uses_the_default():
    assert Calibration(default_temperature=2.0).temperature("choice") == 2.0


def test_what_the_options_leave_abstains():
    chosen = PLAIN.choice([0.5, 0.2])
    assert chosen.is_valid
    assert chosen.abstain == pytest.approx(0.3, abs=1e-6)


def test_more_than_one_in_all_is_marked_and_brought_to_one():
    chosen = PLAIN.choice([0.9, 0.9])
    assert not chosen.is_valid
    assert chosen.abstain == 0
    assert chosen.probabilities == [0.5, 0.5]


def test_a_single_level_is_certain():
    assert Calibration(temperatures={"score": 1.19}).score([1.0]) == [1.0]


def test_confidence_is_how_far_the_largest_stands_out():
    assert confidence([1.0]) == 1
    assert confidence([0.5, 0.5]) == 0
    assert confidence([0.0, 1.0]) == 1
    assert confidence([0.6, 0.2, 0.2]) == pytest.approx(0.4, abs=1e-6)


def test_an_option_without_text_has_features_of_its_own():
    empty, other = lm_features([(), (-1.0, -2.0, -4.0)])
    assert empty.tolist() == [0, 0, 0, pytest.approx(-10_000 + 6), 0, 0]
    assert other.tolist() == pytest.approx([-0.6, -3.0, 0.2, 0.0, -1.0, 1.0])


def test_a_lone_option_without_text_has_no_features():
    assert lm_features([()]).tolist() == [[0, 0, 0, 0, 0, 0]]


def test_levels_share_what_lies_between_their_cuts():
    rows = [RowOutput(own, 0.5) for own in (-1.0, 0.0, 3.0)]
    found = level_probabilities(rows)
    second = -1.0 + math.log(2)
    below = [1 / (1 + math.exp(0.5 - cut)) for cut in (-1.0, second)]
    assert found == pytest.approx([below[0], below[1] - below[0], 1 - below[1]], abs=1e-6)


def test_a_level_never_falls_below_the_floor():
    rows = [RowOutput(100.0, 0.0), RowOutput(0.0, 0.0), RowOutput(0.0, 0.0)]
    assert level_probabilities(rows).tolist() == pytest.approx([1, 1e-8, 1e-8])


def test_a_sigmoid_checkpoint_scores_each_option_by_itself():
    rows = [RowOutput(2.0, 9.0), RowOutput(-2.0, 9.0)]
    scorer = OptionScorer(np.zeros(6), 0.0, (1.0, 1.0, 1.0), is_softmax=False)
    assert scorer.mu("choice", rows).tolist() == pytest.approx([0.880797, 0.119203])
