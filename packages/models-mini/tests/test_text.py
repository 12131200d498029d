"""What the network reads."""

import time

import pytest

from models_mini.text import choice_texts, entry_text, noul_texts, plain_text, score_texts


def test_choice_text_holds_question_name_and_description():
    texts = choice_texts("Which team?", {"billing": "invoices", "sales": None})
    assert texts == ["Which team? billing: invoices", "Which team? sales"]


def test_missing_question_leaves_the_option_alone():
    assert choice_texts(None, {"billing": None}) == ["billing"]


def test_structured_entries_are_json_text():
    assert entry_text({"b": [1, "é"]}) == '{"b": [1, "é"]}'
    assert score_texts(["How", "bad?"], [{"level": "low"}]) == ['["How", "bad?"] {"level": "low"}']


@pytest.mark.parametrize("criteria", [None, {}, {"true": None}, {"false": "false", "true": "TRUE"}])
def test_noul_without_descriptions_is_yes_or_no(criteria):
    assert noul_texts("Is it late?", criteria) == ["Is it late? no", "Is it late? yes"]


def test_noul_with_one_side_describes_that_side():
    assert noul_texts(None, {"true": "it is late."}) == ["no", "yes: it is late"]


@pytest.mark.parametrize(
    "text",
    [
        "I want it",
        "I want it.",
        "true I want it",
        "True: I want it.",
        "I want it true.",
        "I want it. FALSE",
        "(false) I want it",
        "I want it = false",
        "I want true it",
        "`false` I want it / TRUE",
        "TRUE - I want it",
        '"true", I want it',
        "[true] I want it.",
        "label=true; I want it".removeprefix("label"),
    ],
)
def test_truth_words_leave_no_trace_in_a_noul(text):
    assert plain_text(text) == "I want it"


@pytest.mark.parametrize("text", ["untrue words", "a falsehood", "construe it", "truest love"])
def test_words_that_only_contain_them_stay(text):
    assert plain_text(text) == text


def test_long_runs_of_punctuation_take_no_time():
    started = time.perf_counter()
    assert len(plain_text("- ," * 300_000 + "x true")) == 900_001
    assert time.perf_counter() - started < 1


def test_booleans_of_an_object_are_yes_and_no():
    assert plain_text({"vip": True, "notes": ["false", 1]}) == '{"vip": "yes", "notes": ["", 1]}'


@pytest.mark.parametrize("state", ["It is late.", {"a": ["x.", True]}, " so. ", "", "1.5", [None]])
def test_a_state_without_truth_words_is_one_text_for_all_types(state):
    assert entry_text(state) == plain_text(state)


def test_other_types_read_the_words():
    assert choice_texts(None, {"true": None, "false": None}) == ["true", "false"]
