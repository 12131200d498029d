"""The texts that the encoder sees."""

import pytest
from conftest import CASES

from models_clm.text import state_text, texts_of, to_text
from system1_core import Question


def question_of(id, entry):
    return Question(
        id=id,
        type=entry["type"],
        instructions=entry.get("instructions"),
        criteria=entry.get("criteria"),
    )


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_golden_texts_are_exact(case):
    request = case["request"]
    for expected in case["questions"]:
        question = question_of(expected["id"], request["questions"][expected["id"]])
        texts = texts_of(request["state"], question)
        assert texts.state == expected["state_text"]
        assert list(texts.candidates) == expected["candidate_texts"]
        assert list(question.options) == expected["keys"]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, ""),
        ("  kept ", "  kept "),
        (True, "true"),
        (False, "false"),
        (7, "7"),
        (1.0, "1.0"),
        (1e16, "1e+16"),
        (1e-05, "1e-05"),
        (-0.0, "-0.0"),
        ({}, ""),
        ([], ""),
        ({"a": 1, "b": None}, "a: 1\n\nb: "),
        ({"a": {"b": 1, "c": 2}}, "a:\n  b: 1\n  c: 2"),
        ({"a": {}, "b": []}, "a: \n\nb: "),
        ([1, [2, 3]], "- 1\n-\n  - 2\n  - 3"),
        ([{"k": [1]}], "-\n  k:\n    - 1"),
        ({"a": {"b": "one\ntwo"}}, "a:\n  b: one\ntwo"),
    ],
)
def test_values_render_as_prose_fields(value, text):
    assert to_text(value) == text


def test_state_and_instructions_are_stripped_and_parted_by_a_blank_line():
    assert state_text(" s \n", "\n i ") == "s\n\ni"


@pytest.mark.parametrize(
    ("state", "asked", "text"), [("s", None, "s"), (None, "i", "i"), ("", " ", "")]
)
def test_state_text_leaves_out_what_is_empty(state, asked, text):
    assert state_text(state, asked) == text


def test_option_without_description_is_its_name_but_an_empty_container_is_a_text():
    question = Question(id="q", type="choice", criteria={"a": None, "b": "", "c": {}, "d": " "})
    assert texts_of("s", question).candidates == ("a", "b", "", " ")


def test_noul_without_instructions_is_the_bare_side():
    assert texts_of("s", Question(id="q", type="noul")).candidates == ("false: false", "true: true")


def test_noul_may_describe_one_side_alone():
    question = Question(id="q", type="noul", instructions=" Late? ", criteria={"true": "it is"})
    assert texts_of("s", question).candidates == (
        "false: No. This is false: Late?",
        "true: it is",
    )
