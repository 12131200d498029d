"""The reference profile's limits, and the order in which it looks at a body."""

import pytest

from models_openjev.grammar import MAX_CANDIDATES, MAX_QUESTIONS
from models_openjev.reference import ReferenceDialect
from system1_core.errors import InvalidRequest, TooLarge
from system1_core.wire.dialect import Body, RequestLimits

NOUL = {"type": "noul", "instructions": "x"}


def parse(body, **fields):
    return ReferenceDialect().parse(Body(json=body, **fields), RequestLimits())


def ask(question):
    return parse({"state": "s", "questions": {"q": question}}).questions[0]


def choice(count):
    return {"type": "choice", "instructions": "x", "criteria": {str(i): None for i in range(count)}}


@pytest.mark.parametrize("count", [1, 255])
def test_so_many_options_are_accepted(count):
    assert len(ask(choice(count)).options) == count


@pytest.mark.parametrize("count", [2, 10])
def test_so_many_levels_are_accepted(count):
    question = {"type": "score", "instructions": "x", "criteria": ["l"] * count}
    assert len(ask(question).options) == count


@pytest.mark.parametrize(
    "question",
    [
        choice(0),
        choice(256),
        {"type": "score", "instructions": "x", "criteria": ["one"]},
        {"type": "score", "instructions": "x", "criteria": ["l"] * 11},
        {"type": "score", "instructions": "x", "criteria": ["a", None]},
        {"type": "score", "instructions": "x"},
        {"type": "choice", "instructions": "x"},
        {"type": "noul", "instructions": None},
        {"type": "noul", "instructions": True},
        {"type": "noul", "instructions": "x", "criteria": {}},
        {"type": "noul", "instructions": "x", "criteria": {"true": "y", "false": None}},
        {"type": ["noul"], "instructions": "x"},
        "noul",
        None,
    ],
)
def test_a_bad_question_is_refused_and_named(question):
    with pytest.raises(InvalidRequest, match="'q'"):
        ask(question)


def test_empty_texts_and_containers_are_allowed():
    for empty in ("", [], {}):
        question = {"type": "noul", "instructions": empty}
        question["criteria"] = {"false": empty, "true": empty}
        assert parse({"state": empty, "questions": {"": question}}).questions[0].id == ""


def test_unknown_fields_are_ignored_temperature_included():
    body = {"state": "s", "questions": {"q": NOUL | {"hint": 1}}, "temperature": "hot"}
    assert parse(body) == parse({"state": "s", "questions": {"q": NOUL}})


def test_4096_questions_are_accepted_and_one_more_is_not():
    questions = {str(index): NOUL for index in range(MAX_QUESTIONS)}
    assert len(parse({"state": "s", "questions": questions}).questions) == MAX_QUESTIONS
    with pytest.raises(InvalidRequest, match="4097"):
        parse({"state": "s", "questions": questions | {"more": NOUL}})


def test_65536_candidates_are_accepted_and_one_more_is_not():
    # A noul is one candidate, so these are 257 * 255 + 1.
    questions = {str(index): choice(255) for index in range(257)} | {"last": NOUL}
    assert MAX_CANDIDATES == 257 * 255 + 1
    assert len(parse({"state": "s", "questions": questions}).questions) == 258
    with pytest.raises(InvalidRequest, match="65537 candidates"):
        parse({"state": "s", "questions": questions | {"more": NOUL}})


@pytest.mark.parametrize(
    ("body", "first"),
    [
        ({"state": 3, "questions": [], "model": 1}, "model"),
        ({"state": 3, "questions": []}, "state"),
        ({"state": "s", "questions": {"a": {"type": "box"}, "b": 1}}, "type"),
        ({"state": "s", "questions": {"a": {"type": "noul", "criteria": 1}}}, "instructions"),
    ],
)
def test_the_first_thing_wrong_is_reported(body, first):
    with pytest.raises(InvalidRequest) as caught:
        parse(body)
    (problem,) = caught.value.problems
    assert problem.loc[-1] == first


def test_parts_of_a_multipart_body_are_refused():
    with pytest.raises(InvalidRequest, match="text only"):
        parse({"state": "s", "questions": {"q": NOUL}}, parts={"asset-0": b"x"})


def test_the_body_limit_is_the_originals():
    body = {"state": "s", "questions": {"q": NOUL}}
    parse(body, num_bytes=4 * 2**20)
    with pytest.raises(TooLarge, match="4194305 bytes, limit 4194304"):
        parse(body, num_bytes=4 * 2**20 + 1)


@pytest.mark.parametrize("states", [[], "x", [3], ["x"] * 65], ids=["none", "text", "3", "65"])
def test_a_bad_list_of_states_is_refused(states):
    body = Body(json={"states": states, "questions": {"q": NOUL}})
    with pytest.raises(InvalidRequest, match="states"):
        ReferenceDialect().parse_batch(body, RequestLimits())
