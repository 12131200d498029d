from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from system1_core.answers import ChoiceAnswer, NoulAnswer, Result, ScoreAnswer
from system1_core.errors import InvalidRequest, NotFound, TooLarge
from system1_core.request import Request
from system1_core.wire.dialect import Body, RequestLimits
from system1_core.wire.systemone import SystemOne

CHOICE = {"type": "choice", "instructions": "Which?", "criteria": {"a": "first", "b": None}}
SCORE = {"type": "score", "criteria": ["low", {"at": "high"}]}
NOUL = {"type": "noul", "instructions": "Is it?"}


def one(question):
    return {"state": "s", "questions": {"q": question}}


def batch(json, **limits):
    return SystemOne().parse_batch(Body(json=json), RequestLimits(**limits))


def test_a_request_is_parsed_as_it_stands(parse):
    questions = {"urgency level": SCORE, "😀": NOUL, "고객.질문": CHOICE}
    request = parse({"model": "jev-latest", "state": "s", "questions": questions})
    assert request.model == "jev-latest"
    assert [question.id for question in request.questions] == list(questions)
    assert request.questions[0].criteria == ["low", {"at": "high"}]
    assert request.questions[2].options == ("a", "b")
    assert request.questions[1].criteria is None


@pytest.mark.parametrize("state", ["", "text", {}, {"a": None}, [], [1, None]])
def test_a_state_is_any_string_object_or_array(parse, state):
    assert parse({"state": state, "questions": {"q": NOUL}}).state == state


@pytest.mark.parametrize("state", [None, 1, 1.5, True])
def test_other_states_are_refused(parse, refusal, state):
    (problem,) = refusal(parse, {"state": state, "questions": {"q": NOUL}})
    assert problem["loc"] == ["body", "state"]
    assert "must be a string, an object or an array" in problem["msg"]


def test_missing_fields_are_named(parse, refusal):
    problems = refusal(parse, {})
    assert [problem["loc"] for problem in problems] == [["body", "state"], ["body", "questions"]]
    assert {problem["type"] for problem in problems} == {"missing"}


@pytest.mark.parametrize("body", [None, [], "text", 5, True])
def test_a_body_that_is_no_object_is_refused(parse, refusal, body):
    assert refusal(parse, body)[0]["loc"] == ["body"]


@pytest.mark.parametrize("model", [None, "any", ""])
def test_a_model_is_a_string_or_nothing(parse, model):
    assert parse({**one(NOUL), "model": model}).model == model


@pytest.mark.parametrize("model", [1, ["a"], {}])
def test_other_models_are_refused(parse, refusal, model):
    assert refusal(parse, {**one(NOUL), "model": model})[0]["loc"] == ["body", "model"]


def test_an_absent_model_is_none(parse):
    assert parse(one(NOUL)).model is None


def test_unknown_fields_are_kept_in_extra(parse):
    request = parse({**one({**NOUL, "weight": 2}), "x_nonce": "n"})
    assert request.extra == {"x_nonce": "n"}
    assert request.questions[0].extra == {"weight": 2}


@pytest.mark.parametrize("questions", [{}, [], None, "q", [NOUL]])
def test_questions_are_an_object_with_entries(parse, refusal, questions):
    problem = refusal(parse, {"state": "s", "questions": questions})[0]
    assert problem["loc"] == ["body", "questions"]


def test_an_empty_id_is_refused(parse, refusal):
    assert "empty" in refusal(parse, {"state": "s", "questions": {"": NOUL}})[0]["msg"]


@pytest.mark.parametrize("kind", ["boolean", "box", "Choice", "", None, 3, ["noul"], {}])
def test_an_unknown_type_names_the_accepted_ones(parse, refusal, kind):
    (problem,) = refusal(parse, one({"type": kind, "criteria": {"a": None}}))
    assert problem["loc"] == ["body", "questions", "q", "type"]
    assert "choice, score, noul" in problem["msg"]


def test_a_missing_type_is_refused(parse, refusal):
    (problem,) = refusal(parse, one({"instructions": "?"}))
    assert problem["type"] == "missing"
    assert problem["loc"] == ["body", "questions", "q", "type"]


@pytest.mark.parametrize("question", [None, "noul", [], 1])
def test_a_question_is_an_object(parse, refusal, question):
    assert refusal(parse, one(question))[0]["loc"] == ["body", "questions", "q"]


@pytest.mark.parametrize("entry", ["text", {"a": 1}, ["x"], None])
def test_structured_text_is_accepted_wherever_text_is(parse, entry):
    question = {"type": "choice", "instructions": entry, "criteria": {"a": entry, "b": "x"}}
    (parsed,) = parse(one(question)).questions
    assert parsed.instructions == entry
    assert parsed.criteria["a"] == entry


@pytest.mark.parametrize("entry", [1, 0.5, True])
def test_numbers_and_booleans_are_no_entries(parse, refusal, entry):
    assert refusal(parse, one({**NOUL, "instructions": entry}))[0]["loc"] == [
        "body", "questions", "q", "noul", "instructions",
    ]  # fmt: skip
    assert refusal(parse, one({"type": "choice", "criteria": {"a": entry}}))[0]["loc"] == [
        "body", "questions", "q", "choice", "criteria", "a",
    ]  # fmt: skip
    assert refusal(parse, one({"type": "score", "criteria": ["a", entry]}))[0]["loc"] == [
        "body", "questions", "q", "score", "criteria", 1,
    ]  # fmt: skip
    assert refusal(parse, one({"type": "noul", "criteria": {"true": entry}}))[0]["loc"] == [
        "body", "questions", "q", "noul", "criteria", "true",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("question", "type"),
    [
        ({"type": "choice"}, "missing"),
        ({"type": "choice", "criteria": {}}, "too_short"),
        ({"type": "choice", "criteria": ["a", "b"]}, "type_error"),
        ({"type": "choice", "criteria": None}, "type_error"),
        ({"type": "score"}, "missing"),
        ({"type": "score", "criteria": []}, "too_short"),
        ({"type": "score", "criteria": {"0": "low", "1": "high"}}, "type_error"),
        ({"type": "noul", "criteria": ["yes", "no"]}, "type_error"),
        ({"type": "noul", "criteria": {"yes": "it is"}}, "extra_forbidden"),
    ],
)
def test_criteria_of_the_wrong_form_are_refused_in_place(parse, refusal, question, type):
    (problem,) = refusal(parse, one(question))
    assert problem["loc"] == ["body", "questions", "q", question["type"], "criteria"]
    assert problem["type"] == type


def test_a_null_level_is_refused(parse, refusal):
    (problem,) = refusal(parse, one({"type": "score", "criteria": ["a", None]}))
    assert problem["loc"][-1] == 1
    assert "got null" in problem["msg"]


def test_an_unknown_side_of_a_noul_is_named(parse, refusal):
    (problem,) = refusal(parse, one({"type": "noul", "criteria": {"true": "x", "True": "y"}}))
    assert "'True'" in problem["msg"]


@pytest.mark.parametrize("criteria", [None, {}, {"true": "x"}, {"false": None}])
def test_a_noul_may_have_any_of_its_sides(parse, criteria):
    assert parse(one({"type": "noul", "criteria": criteria})).questions[0].criteria == criteria


def test_one_option_and_one_level_are_accepted(parse):
    assert parse(one({"type": "choice", "criteria": {"only": None}})).questions[0].options
    assert parse(one({"type": "score", "criteria": ["only"]})).questions[0].options == ("0",)


def test_255_options_and_10_levels_pass_and_one_more_does_not(parse, refusal):
    def choice(n):
        return one({"type": "choice", "criteria": {str(i): None for i in range(n)}})

    def score(n):
        return one({"type": "score", "criteria": ["x"] * n})

    assert len(parse(choice(255)).questions[0].options) == 255
    assert len(parse(score(10)).questions[0].options) == 10
    assert "256 options, limit 255" in refusal(parse, choice(256))[0]["msg"]
    assert "11 levels, limit 10" in refusal(parse, score(11))[0]["msg"]


def test_too_many_questions_name_value_and_limit(parse, refusal):
    body = {"state": "s", "questions": {str(i): NOUL for i in range(5)}}
    assert "5 questions, limit 4" in refusal(parse, body, max_questions=4)[0]["msg"]


def test_the_options_of_all_questions_are_limited_together(parse, refusal):
    body = {"state": "s", "questions": {"a": CHOICE, "b": SCORE, "c": NOUL}}
    assert parse(body, max_total_options=6)
    assert "6 options in all, limit 5" in refusal(parse, body, max_total_options=5)[0]["msg"]


def test_all_problems_of_a_body_are_reported_at_once(parse, refusal):
    body = {
        "model": 1,
        "state": None,
        "questions": {"a": {"type": "box"}, "b": {**NOUL, "criteria": 1}},
    }
    assert [problem["loc"][1:3] for problem in refusal(parse, body)] == [
        ["model"],
        ["state"],
        ["questions", "a"],
        ["questions", "b"],
    ]


def test_at_most_20_problems_are_reported(parse, refusal):
    body = {"state": None, "questions": {str(i): 1 for i in range(200)}}
    assert len(refusal(parse, body)) == 20


def test_names_of_a_megabyte_do_not_come_back_whole(parse, refusal):
    problems = refusal(parse, {"state": "s", "questions": {"q": {"type": "x" * 2**20}}})
    assert len(str(problems)) < 1000


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
KINDS = st.sampled_from(["choice", "score", "noul", "box"])
NEARLY = st.fixed_dictionaries(
    {},
    optional={
        "model": VALUES,
        "state": VALUES,
        "states": VALUES | st.lists(VALUES, max_size=3),
        "assets": VALUES | st.dictionaries(st.text(), st.fixed_dictionaries(
            {"type": st.just("image")}, optional={"data_base64": VALUES, "part": VALUES}
        )),
        "media": VALUES | st.lists(st.fixed_dictionaries({"type": st.just("image")})),
        "images": VALUES | st.lists(st.text()),
        "questions": VALUES
        | st.dictionaries(
            st.text(),
            st.fixed_dictionaries({"type": KINDS | VALUES}, optional={"criteria": VALUES}),
            max_size=3,
        ),
    },
)  # fmt: skip


@given(VALUES | NEARLY)
def test_any_json_gives_a_request_or_a_client_error(value):
    with suppress(InvalidRequest, TooLarge):
        assert isinstance(SystemOne().parse(Body(json=value), RequestLimits()), Request)


@given(VALUES | NEARLY)
def test_any_json_gives_a_batch_or_a_client_error(value):
    with suppress(InvalidRequest, TooLarge):
        assert SystemOne().parse_batch(Body(json=value), RequestLimits())


def test_answers_are_rendered_by_id_in_order(parse):
    request = parse({"state": "s", "questions": {"z": SCORE, "a": NOUL, "m": CHOICE}})
    result = Result(
        answers=[
            ScoreAnswer(probabilities=[0.25, 0.75]),
            NoulAnswer(probability=0.5, extra={"x_note": 1}),
            ChoiceAnswer(probabilities={"a": 0.75, "b": 0.25}),
        ],
        input_tokens=7,
        extra={"x_timing": {"ms": 1}},
    )
    assert SystemOne().render(request, result, "mini") == {
        "model": "mini",
        "answers": {
            "z": {
                "type": "score",
                "score": 0.75,
                "legend": {"0": "low", "1": {"at": "high"}},
                "probabilities": {"0": 0.25, "1": 0.75},
                "confidence": 0.5,
            },
            "a": {"type": "noul", "noul": 0.5, "x_note": 1},
            "m": {
                "type": "choice",
                "choice": "a",
                "probabilities": {"a": 0.75, "b": 0.25},
                "confidence": 0.5,
            },
        },
        "usage": {"input_tokens": 7, "output_tokens": 0},
        "x_timing": {"ms": 1},
    }
    assert list(SystemOne().render(request, result, "mini")["answers"]) == ["z", "a", "m"]


def test_errors_other_than_422_are_shaped():
    assert SystemOne().error(NotFound("no model 'x'")) == {
        "detail": {"error_type": "not_found_error", "message": "no model 'x'"}
    }


def test_only_the_alias_of_the_sdk_is_accepted_as_a_model():
    assert SystemOne().accepts_model("jev-latest")
    assert not SystemOne().accepts_model("jev-1.13")


def test_a_batch_is_one_request_for_each_state():
    requests = batch({"model": "m", "states": ["a", {"b": 1}], "questions": {"q": NOUL}})
    assert [request.state for request in requests] == ["a", {"b": 1}]
    assert {request.model for request in requests} == {"m"}
    assert all(request.questions == requests[0].questions for request in requests)


@pytest.mark.parametrize("states", [None, "s", {}, []])
def test_states_are_a_list_with_entries(refusal, states):
    problems = refusal(batch, {"states": states, "questions": {"q": NOUL}})
    assert problems[0]["loc"] == ["body", "states"]


def test_a_wrong_state_of_a_batch_is_named_by_its_index(refusal):
    (problem,) = refusal(batch, {"states": ["a", None], "questions": {"q": NOUL}})
    assert problem["loc"] == ["body", "states", 1]


def test_too_many_states_name_value_and_limit(refusal):
    body = {"states": ["a"] * 3, "questions": {"q": NOUL}}
    assert "3 states, limit 2" in refusal(batch, body, max_states=2)[0]["msg"]


@pytest.mark.parametrize("question", [5, {}, {"type": "choice"}, NOUL | {"instructions": 5}])
def test_a_long_id_does_not_hide_what_is_wrong(parse, refusal, question):
    (problem,) = refusal(parse, {"state": "s", "questions": {"i" * 5_000: question}})
    assert "must be" in problem["msg"]
    request = parse({"state": "s", "questions": {"i" * 5_000: NOUL}})
    assert request.questions[0].invalid("is wrong").message.endswith("is wrong")
