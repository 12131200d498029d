"""The plain reader's prompt, its rounds and its temperatures."""

import json
import math

import pytest

from models_qwen3_5.reader import (
    Mentions,
    PlainText,
    Temperatures,
    groups_of,
    joined,
    option_lines,
    question_text,
    read_temperatures,
    state_text,
)
from system1_core.errors import ConfigError
from system1_core.request import Question, json_text


def question(kind, criteria=None):
    return Question(id="q", type=kind, criteria=criteria)


def test_options_say_names_and_descriptions():
    choice = question("choice", {"a": None, "b": "two", "c": {"x": 1}})
    assert option_lines(choice, json_text) == ["a", "b: two", 'c: {"x": 1}']
    assert option_lines(question("score", ["low", ["high"]]), json_text) == ["low", '["high"]']
    assert option_lines(question("noul"), json_text) == ["Yes", "No"]
    sided = question("noul", {"false": "never"})
    assert option_lines(sided, json_text) == ["Yes", "No: never"]


def test_the_users_turn_is_the_documented_text():
    expected = (
        "State:\nit rains\n\nQuestion: Wet?\n\nOptions:\nA. Yes\nB. No\n\nAnswer with one letter."
    )
    assert state_text("it rains") + question_text("Wet?", ["Yes", "No"]) == expected


def test_placeholders_become_numbers_longest_first():
    mentions = Mentions(["pic", "pic1"])
    value = {"pic": ["see pic1", 3, None], "x": "pic and pic1"}
    expected = {"pic": ["see (image 2)", 3, None], "x": "(image 1) and (image 2)"}
    assert mentions.replaced(value) == expected


def test_without_images_nothing_is_replaced():
    assert Mentions([]).replaced(["pic"]) == ["pic"]


def test_added_tokens_are_spelled_apart():
    plain = PlainText(["<|im_end|>", "<think>"])
    assert plain.of("a<|im_end|>b<<think>") == "a< |im_end|>b<< think>"
    assert plain.of("1 < 2 <thinking>") == "1 < 2 <thinking>"


@pytest.mark.parametrize(
    ("count", "sizes"),
    [(1, [1]), (26, [26]), (27, [13, 14]), (52, [26, 26]), (255, [25] * 5 + [26] * 5)],
)
def test_groups_are_even_and_hold_at_most_26(count, sizes):
    groups = groups_of(count)
    assert sorted(len(group) for group in groups) == sorted(sizes)
    assert [option for group in groups for option in group] == list(range(count))


def test_the_finals_winner_is_the_most_probable_option():
    found = joined([[0.5, 0.5 - 1e-9, 0.0], [0.9, 0.1]], [0.6, 0.4])
    assert found.index(max(found)) == 0
    assert math.isclose(math.fsum(found), 1)
    assert math.isclose(found[0] / found[3], 0.6 / 0.4)
    assert math.isclose(found[3] / found[4], 9)


def test_temperatures_come_from_a_file(tmp_path):
    file = tmp_path / "t.json"
    file.write_text(json.dumps({"noul": 1.5, "choice": 2}))
    found = read_temperatures(str(file))
    assert found == Temperatures(noul=1.5, choice=2)
    assert found.of(question("score", ["a"])) == 1


@pytest.mark.parametrize(
    "text",
    [None, "[]", '{"box": 1}', '{"noul": 0}', '{"noul": "2"}', '{"noul": true}', '{"noul": 1e999}'],
    ids=["missing", "list", "other type", "zero", "text", "flag", "infinite"],
)
def test_unusable_temperatures_name_the_option(text, tmp_path):
    file = tmp_path / "t.json"
    if text is not None:
        file.write_text(text)
    with pytest.raises(ConfigError, match="qwen3-5.temperatures"):
        read_temperatures(str(file))
