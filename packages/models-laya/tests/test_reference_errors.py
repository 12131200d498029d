"""Bad requests of the original: what it refuses is refused, what it answers is answered."""

import pytest
from conftest import assert_close, fixture

from system1_core.errors import InvalidRequest, System1Error, TooLarge

ERRORS = fixture("errors.json")
# Where only the transport sees the body: not JSON, or a lone surrogate.
PARSED = [case for case in ERRORS if "raw_body" not in case]
REFUSED = [case for case in PARSED if case["status"] != 200]
ANSWERED = [case for case in PARSED if case["status"] == 200]
NOUL = {"q": {"type": "noul", "instructions": "Any?"}}
RECIPES = {
    "state_50001": {"state": "x" * 50_001, "questions": NOUL},
    "state_json_too_large": {"state": {"b": '"' * 25_010, "c": 1}, "questions": NOUL},
}


def _body(case):
    return case["request"] if "request" in case else RECIPES[case["name"]]


def _ask(served, case):
    return (served.ask_batch if case["endpoint"].endswith("batch") else served.ask_reference)(
        _body(case)
    )


def _name(case):
    return case["name"]


@pytest.mark.parametrize("case", REFUSED, ids=_name)
def test_what_the_original_refuses_is_refused(served, case):
    with pytest.raises(System1Error) as caught:
        _ask(served, case)
    # A malformed body is 422 in the protocol where the original says 400.
    assert caught.value.status == {400: 422}.get(case["status"], case["status"])
    for word in case.get("detail_mentions", ()):
        assert word in caught.value.message


@pytest.mark.parametrize("case", [case for case in REFUSED if case["status"] == 413], ids=_name)
def test_a_limit_names_what_was_measured_and_what_is_allowed(served, case):
    with pytest.raises(TooLarge) as caught:
        _ask(served, case)
    assert caught.value.message == case["detail"]


@pytest.mark.parametrize("case", ANSWERED, ids=_name)
def test_what_the_original_answers_is_answered(served, case):
    found = _ask(served, case)
    found.pop("routing")
    assert_close(found, case["response"])


def test_256_options_are_too_many_for_a_tournament(served):
    exchange = fixture("server.json")["tournament_16"][1]
    body = {
        "state": "x",
        "questions": {
            "i": {"type": "choice", "instructions": "x", "criteria": [f"o{i}" for i in range(256)]}
        },
    }
    with pytest.raises(TooLarge) as caught:
        served.with_options(tournament_group=16).ask_reference(body)
    assert exchange["status"] == 413
    assert caught.value.message == exchange["response"]["detail"]


@pytest.mark.parametrize(
    "question",
    [
        pytest.param({"type": "noul", "instructions": {}}, id="empty object as instructions"),
        pytest.param({"type": "noul", "instructions": None}, id="null instructions"),
        pytest.param({"type": "box", "instructions": "x"}, id="unknown type"),
        pytest.param({"type": ["noul"], "instructions": "x"}, id="type is a list"),
        pytest.param({"type": "choice", "instructions": "x", "criteria": {}}, id="no options"),
        pytest.param({"type": "choice", "instructions": "x", "criteria": [[1]]}, id="label list"),
        pytest.param({"type": "choice", "instructions": "x", "criteria": [1, 1.0]}, id="1 and 1.0"),
        pytest.param({"type": "score", "instructions": "x", "criteria": {"0": "a"}}, id="map"),
        pytest.param({"type": "noul", "instructions": "x", "criteria": ["a"]}, id="noul list"),
        pytest.param(
            {"type": "noul", "instructions": "x", "labels": {"true": "a", "false": " a "}},
            id="equal labels",
        ),
        pytest.param(
            {"type": "noul", "instructions": "x", "labels": {"true": "a", "false": " "}},
            id="blank label",
        ),
        pytest.param(
            {"type": "score", "instructions": "x", "criteria": ["a", "b"], "option_order": [0]},
            id="short order",
        ),
        pytest.param(
            {"type": "choice", "instructions": "x", "criteria": ["a"], "option_order": "0"},
            id="order is text",
        ),
    ],
)
def test_a_bad_question_is_refused_and_named(served, question):
    with pytest.raises(InvalidRequest, match="'bad'"):
        served.ask_reference({"state": "x", "questions": {"bad": question}})


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("hooks", []),
        ("hooks_timeout", 1),
        ("max_len", 8193),
        ("head_max_len", 1.0),
        ("lang_guess", ["de"]),
        ("model", "../english"),
        ("model", "~models"),
        ("model", "a\\b"),
        ("task", 3),
        ("min_confidence", "0.5"),
        ("min_confidence", {"default": 2}),
        ("min_confidence", {"choice:2": None}),
    ],
)
def test_a_bad_control_is_refused_and_named(served, field, value):
    with pytest.raises(InvalidRequest, match=field.removesuffix("s")):
        served.ask_reference({"state": "x", "questions": NOUL, field: value})


@pytest.mark.parametrize(
    ("field", "value"), [("batch_size", 0), ("batch_size", True), ("diagnostics", True)]
)
def test_a_bad_batch_control_is_refused_and_named(served, field, value):
    with pytest.raises(InvalidRequest, match=field):
        served.ask_batch({"states": ["x"], "questions": NOUL, field: value})


def test_null_controls_count_as_not_sent(served):
    body = {"state": "x", "questions": NOUL, "model": "english"}
    nulls = dict.fromkeys(
        ("task", "lang", "lang_guess", "max_len", "head_max_len", "min_confidence", "hooks")
    )
    assert served.ask_reference(body | nulls) == served.ask_reference(body)


@pytest.mark.parametrize("instructions", [7, True, ["a"], {"a": 1}, 0])
def test_instructions_need_not_be_text(served, instructions):
    body = {"state": "x", "questions": {"q": {"type": "noul", "instructions": instructions}}}
    assert served.ask_reference(body)["answers"]["q"]["type"] == "noul"


@pytest.mark.parametrize("state", [0, 1.5, True, False, [], {}, ""])
def test_a_state_of_any_json_kind_is_answered(served, state):
    body = {"state": state, "questions": NOUL, "model": "english"}
    assert served.ask_reference(body)["answers"]["q"]["type"] == "noul"
