from base64 import b64encode
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from system1_core.answers import ChoiceAnswer, NoulAnswer, Result, ScoreAnswer
from system1_core.errors import InvalidRequest, NotFound, TooLarge
from system1_core.request import Request
from system1_core.wire.decisions import Decisions
from system1_core.wire.dialect import Body, RequestLimits

PREDICATE = {"type": "predicate", "instructions": "It rains."}


def parse(json, **limits):
    return Decisions().parse(Body(json=json), RequestLimits(**limits))


def ask(*questions):
    return parse({"model": "m", "input": "s", "questions": list(questions)})


def state_of(*items):
    return parse({"input": list(items), "questions": [PREDICATE]}).state


def user(*parts):
    return {"role": "user", "content": list(parts)}


def text(content):
    return {"type": "input_text", "text": content}


def choice(*choices):
    return {"type": "choice", "instructions": "Which?", "choices": list(choices)}


def test_a_predicate_is_a_noul_without_criteria():
    (question,) = ask(PREDICATE).questions
    assert (question.type, question.instructions, question.criteria) == ("noul", "It rains.", None)


def test_questions_are_known_by_position_since_names_may_repeat():
    request = ask({**PREDICATE, "name": "n"}, PREDICATE, {**PREDICATE, "name": "n"})
    assert [question.id for question in request.questions] == ["0", "1", "2"]
    result = Result(answers=[NoulAnswer(probability=p) for p in (0.1, 0.2, 0.3)], input_tokens=1)
    answers = Decisions().render(request, result, "m")["answers"]
    assert [(a["name"], a["probability"]) for a in answers] == [("n", 0.1), (None, 0.2), ("n", 0.3)]


def test_a_choice_shows_values_and_descriptions():
    (question,) = ask(choice({"value": "a", "description": "first"}, {"value": "b"})).questions
    assert question.criteria == {"a": "first", "b": None}


def test_a_string_and_a_boolean_of_one_spelling_stay_apart():
    request = ask(choice({"value": True}, {"value": "true"}, {"value": "false"}, {"value": False}))
    options = request.questions[0].options
    assert options == ("true (boolean)", "true", "false", "false (boolean)")
    answer = ChoiceAnswer(probabilities=dict(zip(options, (0.4, 0.3, 0.2, 0.1), strict=True)))
    result = Result(answers=[answer], input_tokens=1)
    shown = Decisions().render(request, result, "m")["answers"][0]
    assert shown["choice"] is True
    assert [entry["value"] for entry in shown["probabilities"]] == [True, "true", "false", False]
    assert [entry["probability"] for entry in shown["probabilities"]] == [0.4, 0.3, 0.2, 0.1]


def test_booleans_alone_are_shown_to_the_model_as_plain_words():
    options = ask(choice({"value": False}, {"value": True})).questions[0].options
    assert options == ("false", "true")


def test_a_string_that_spells_the_substitute_does_not_collide():
    values = [{"value": True}, {"value": "true"}, {"value": "true (boolean)"}]
    assert len(set(ask(choice(*values)).questions[0].options)) == 3


@pytest.mark.parametrize("values", [("a", "a"), (True, True)])
def test_equal_values_are_refused(refusal, values):
    problems = refusal(ask, choice(*({"value": value} for value in values)))
    assert problems[0]["loc"] == ["body", "questions", 0, "choices", 1, "value"]


def test_a_level_shows_its_label_and_description_and_answers_with_its_label():
    levels = [{"label": "low", "description": "can wait"}, {"label": "high"}]
    request = ask({"type": "score", "instructions": "?", "levels": levels, "name": "u"})
    assert request.questions[0].criteria == ["low: can wait", "high"]
    result = Result(answers=[ScoreAnswer(probabilities=[0.25, 0.75])], input_tokens=1)
    assert Decisions().render(request, result, "m")["answers"] == [
        {
            "type": "score",
            "name": "u",
            "score": 0.75,
            "confidence": 0.5,
            "probabilities": [
                {"value": 0, "label": "low", "probability": 0.25},
                {"value": 1, "label": "high", "probability": 0.75},
            ],
        }
    ]


def test_usage_has_all_of_openais_counts():
    result = Result(answers=[NoulAnswer(probability=0.5)], input_tokens=7, output_tokens=2)
    assert Decisions().render(ask(PREDICATE), result, "m")["usage"] == {
        "input_tokens": 7,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": 2,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 9,
    }


def test_what_a_model_says_beyond_the_shape_stands_in_x_fields():
    answer = NoulAnswer(probability=0.5, extra={"x_note": "n"})
    result = Result(answers=[answer], input_tokens=1, extra={"x_timing": 1})
    shown = Decisions().render(ask(PREDICATE), result, "m")
    assert shown["x_timing"] == 1
    assert shown["answers"][0]["x_note"] == "n"


@pytest.mark.parametrize(
    ("question", "path"),
    [
        ("x", []),
        ({}, ["type"]),
        ({"type": "noul", "instructions": "?"}, ["type"]),
        ({"type": "predicate"}, ["instructions"]),
        ({"type": "predicate", "instructions": None}, ["instructions"]),
        ({"type": "predicate", "instructions": []}, ["instructions"]),
        ({**PREDICATE, "name": 5}, ["name"]),
        (choice(), ["choices"]),
        (choice({"value": "a"}), ["choices"]),
        ({"type": "choice", "instructions": "?"}, ["choices"]),
        (choice({"value": "a"}, {"value": 1}), ["choices", 1, "value"]),
        (choice({"value": "a"}, "b"), ["choices", 1, "value"]),
        (choice({"value": "a"}, {"value": "b", "description": 1}), ["choices", 1, "description"]),
        ({"type": "score", "instructions": "?", "levels": [{"label": "a"}]}, ["levels"]),
        ({"type": "score", "instructions": "?", "levels": ["a", "b"]}, ["levels", 0, "label"]),
    ],
)
def test_a_malformed_question_is_refused_in_place(refusal, question, path):
    assert refusal(ask, question)[0]["loc"] == ["body", "questions", 0, *path]


def test_1_to_400_questions_are_accepted(refusal):
    assert len(ask(*[PREDICATE] * 400).questions) == 400
    assert "401 questions" in refusal(ask, *[PREDICATE] * 401)[0]["msg"]
    assert "0 questions" in refusal(ask)[0]["msg"]


def test_2_to_255_choices_and_2_to_10_levels_are_accepted(refusal):
    assert ask(choice(*({"value": str(i)} for i in range(255))))
    problem = refusal(ask, choice(*({"value": str(i)} for i in range(256))))[0]
    assert "256 entries, must be 2 to 255" in problem["msg"]
    levels = {"type": "score", "instructions": "?", "levels": [{"label": "x"}] * 11}
    assert "11 entries, must be 2 to 10" in refusal(ask, levels)[0]["msg"]


@pytest.mark.parametrize("content", ["plain", [text("plain")]])
def test_a_lone_text_message_of_the_user_is_a_plain_state(content):
    assert state_of({"role": "user", "content": content}) == "plain"
    assert state_of({"type": "message", "role": "user", "content": content}) == "plain"


def test_a_lone_json_part_is_the_state_itself():
    assert state_of(user({"type": "input_json", "data": {"a": [1]}})) == {"a": [1]}


def test_other_messages_keep_their_roles():
    assert state_of(
        {"role": "system", "content": "be kind"},
        {"role": "developer", "content": [text("a"), text("b")]},
        user(text("hi"), {"type": "input_json", "data": [{"a": 1}]}),
        {"role": "assistant", "content": [{"type": "output_text", "text": "hello"}]},
        {"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]},
    ) == [
        {"role": "system", "content": "be kind"},
        {"role": "developer", "content": ["a", "b"]},
        {"role": "user", "content": ["hi", [{"a": 1}]]},
        {"role": "assistant", "content": "hello"},
        {"role": "assistant", "content": "no"},
    ]
    assert state_of({"role": "system", "content": "s"}) == [{"role": "system", "content": "s"}]
    assert state_of(user(text("a"), text("b"))) == [{"role": "user", "content": ["a", "b"]}]


def test_calls_and_outputs_keep_their_ids():
    calls = [
        {"type": "function_call", "call_id": "1", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "1", "output": [text("done")]},
        {"type": "custom_tool_call", "call_id": "1", "name": "g", "input": "x"},
        {"type": "custom_tool_call_output", "call_id": "1", "output": "ok"},
    ]
    calls_as_sent = [dict(call) for call in calls]
    calls_as_sent[1]["output"] = "done"
    assert state_of(*calls) == calls_as_sent


@pytest.mark.parametrize("kind", ["function_call_output", "custom_tool_call_output"])
def test_an_output_needs_a_call_of_its_kind_before_it(refusal, kind):
    other = "custom_tool_call" if kind == "function_call_output" else "function_call"
    call = {"type": other, "call_id": "1", "name": "f", "arguments": "{}", "input": ""}
    problems = refusal(state_of, call, {"type": kind, "call_id": "1", "output": "x"})
    assert problems[0]["loc"] == ["body", "input", 1, "call_id"]


@pytest.mark.parametrize(
    ("item", "path"),
    [
        ("x", []),
        ({"type": "reasoning"}, ["type"]),
        ({"type": ["message"]}, ["type"]),
        ({"role": "tool", "content": "x"}, ["role"]),
        ({"content": "x"}, ["role"]),
        ({"role": "user"}, ["content"]),
        ({"role": "user", "content": []}, ["content"]),
        ({"role": "user", "content": 5}, ["content"]),
        ({"role": "user", "content": ["x"]}, ["content", 0, "type"]),
        ({"role": "system", "content": [{"type": "input_image"}]}, ["content", 0, "type"]),
        ({"role": "assistant", "content": [text("x")]}, ["content", 0, "type"]),
        ({"role": "user", "content": [{"type": "input_text"}]}, ["content", 0, "text"]),
        (user({"type": "input_json", "data": "x"}), ["content", 0, "data"]),
        (user({"type": "input_json", "data": [1]}), ["content", 0, "data"]),
        (user({"type": "input_image"}), ["content", 0, "image_url"]),
        ({"type": "function_call", "call_id": "1", "name": "f"}, ["arguments"]),
        ({"type": "function_call_output", "output": "x"}, ["call_id"]),
    ],
)
def test_a_malformed_item_is_refused_in_place(refusal, item, path):
    assert refusal(state_of, item)[0]["loc"] == ["body", "input", 0, *path]


@pytest.mark.parametrize("given", [None, 5, {}, []])
def test_other_inputs_are_refused(refusal, given):
    problems = refusal(parse, {"input": given, "questions": [PREDICATE]})
    assert problems[0]["loc"] == ["body", "input"]


def nested(levels):
    value = {}
    for _ in range(levels - 1):
        value = {"a": value}
    return value


@pytest.mark.parametrize(
    ("fits", "exceeds", "unit"),
    [
        (nested(32), nested(33), "33 levels, limit 32"),
        ({"a": [0] * 9_998}, {"a": [0] * 9_999}, "10001 values, limit 10000"),
        ({"a": "é" * 131_068}, {"a": "é" * 131_069}, "262146 bytes of compact JSON, limit 262144"),
    ],
)
def test_json_parts_have_limits(refusal, fits, exceeds, unit):
    def state(value):
        return state_of(user({"type": "input_json", "data": value}))

    assert state(fits) == fits
    assert unit in refusal(state, exceeds)[0]["msg"]


def image(content, **more):
    url = f"data:image/png;base64,{b64encode(content).decode()}"
    return {"type": "input_image", "image_url": url, **more}


def test_image_parts_become_placeholders_in_input_and_instructions(png):
    request = parse(
        {
            "input": [user(image(png(1), detail="high"))],
            "questions": [{"type": "predicate", "instructions": [text("like"), image(png(2))]}],
        }
    )
    first, second = request.images
    assert request.state == first
    assert request.questions[0].instructions == ["like", second]
    assert request.images[second].data == png(2)


def test_remote_images_are_refused(refusal):
    part = {"type": "input_image", "image_url": "https://example.com/a.png"}
    assert "never fetched" in refusal(state_of, user(part))[0]["msg"]


def test_an_unknown_detail_is_refused(refusal, png):
    assert "detail" in refusal(state_of, user(image(png(1), detail="max")))[0]["loc"]


def test_images_of_the_other_shape_are_not_ignored(png):
    body = {"input": "s", "questions": [PREDICATE], "images": [b64encode(png(1)).decode()]}
    assert parse(body).state == "[image 1]\ns"


def test_at_most_4_cache_breakpoints_are_accepted(refusal):
    marked = {**text("x"), "prompt_cache_breakpoint": {"mode": "explicit"}}
    assert state_of(user(*[marked] * 4))
    assert "more than 4" in refusal(state_of, user(*[marked] * 5))[0]["msg"]
    wrong = {**text("x"), "prompt_cache_breakpoint": {"mode": "implicit"}}
    assert refusal(state_of, user(wrong))[0]["loc"][-1] == "prompt_cache_breakpoint"


@pytest.mark.parametrize(
    ("fields", "is_fine"),
    [
        ({"prompt_cache_key": "k", "safety_identifier": None}, True),
        ({"prompt_cache_options": {"mode": "explicit", "ttl": "30m"}}, True),
        ({"prompt_cache_options": None, "unknown": 1}, True),
        ({"prompt_cache_key": 5}, False),
        ({"prompt_cache_options": {"mode": []}}, False),
        ({"prompt_cache_options": {"ttl": "1h"}}, False),
        ({"prompt_cache_options": "x"}, False),
    ],
)
def test_cache_options_are_checked_and_change_nothing(refusal, fields, is_fine):
    body = {"input": "s", "questions": [PREDICATE], **fields}
    if is_fine:
        assert parse(body).state == "s"
    else:
        assert refusal(parse, body)[0]["loc"][1] == next(iter(fields))


def test_the_protocols_body_is_answered_in_the_protocols_shape():
    request = parse({"state": "s", "questions": {"q": {"type": "noul"}}})
    result = Result(answers=[NoulAnswer(probability=0.5)], input_tokens=1)
    assert Decisions().render(request, result, "m")["answers"] == {
        "q": {"type": "noul", "noul": 0.5}
    }


def test_a_validation_error_names_its_param_as_openai_does():
    with pytest.raises(InvalidRequest) as raised:
        ask(choice({"value": "a"}, {"value": 1}))
    error = Decisions().error(raised.value)["error"]
    assert error["param"] == "questions[0].choices[1].value"
    assert error["type"] == "invalid_request_error"
    assert error["code"] == "type_error"
    assert "questions[0].choices[1]" in error["message"]


def test_a_models_own_refusal_names_the_field_of_this_shape():
    question = ask(choice({"value": "a"}, {"value": "b"})).questions[0]
    error = Decisions().error(question.invalid("too long", "criteria", "a"))["error"]
    assert error["param"] == "questions[0].choices.a"


def test_other_errors_have_no_param():
    assert Decisions().error(NotFound("no model 'x'")) == {
        "error": {
            "message": "no model 'x'",
            "type": "not_found_error",
            "param": None,
            "code": None,
        }
    }


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
TYPES = st.sampled_from(
    ["message", "input_text", "input_image", "input_json", "output_text", "refusal", "predicate",
     "function_call", "function_call_output", "choice", "score"]
)  # fmt: skip
FIELDS = (
    "role", "content", "text", "data", "image_url", "detail", "call_id", "output",
    "instructions", "choices", "levels", "name", "value", "prompt_cache_breakpoint",
)  # fmt: skip
PIECES = st.recursive(
    VALUES,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.fixed_dictionaries(
            {"type": TYPES},
            optional=dict.fromkeys(FIELDS, inner),
        )
    ),
    max_leaves=12,
)


@given(
    VALUES
    | st.fixed_dictionaries(
        {"input": PIECES, "questions": PIECES | st.lists(PIECES, min_size=1)},
        optional={"prompt_cache_options": VALUES, "model": VALUES, "images": VALUES},
    )
)
def test_any_json_gives_a_request_or_a_client_error(value):
    with suppress(InvalidRequest, TooLarge):
        assert isinstance(parse(value), Request)
