"""The official form: images by mention, text before the instructions, and its answers."""

import base64

import pytest
from conftest import CASES, ask, assert_close, image_bytes, official

from models_omnijev.mentions import Mentions
from system1_core.answers import choice_confidence, score_confidence
from system1_core.errors import InvalidRequest

QUESTIONS = {
    "c": {"type": "choice", "instructions": "Which?", "criteria": {"a": None, "b": "rubric"}},
    "s": {"type": "score", "instructions": "How dark?", "criteria": ["light", "dim", "dark"]},
    "n": {"type": "noul", "instructions": "It is dark."},
}
NATIVE = QUESTIONS | {
    "s": {"type": "score", "instructions": "How dark?", "levels": ["light", "dim", "dark"]}
}


@pytest.fixture
def answered(served):
    return served.ask_protocol(official(QUESTIONS))


@pytest.fixture
def native(served):
    return served.ask(ask(NATIVE))


def test_usage_is_the_originals(answered, native):
    assert answered["usage"] == native["usage"]


def test_a_noul_is_the_originals(answered, native):
    assert answered["answers"]["n"]["type"] == "noul"
    assert_close(answered["answers"]["n"]["noul"], native["answers"]["n"]["noul"])


def test_a_choice_shows_probabilities_given_that_it_does_not_abstain(answered, native):
    answer, expected = answered["answers"]["c"], native["answers"]["c"]
    assert_close(answer["x_probabilities"], expected["probabilities"])
    assert_close(answer["x_abstain"], expected["abstain"])
    assert answer["x_valid"] is expected["valid"]
    for option, p in answer["probabilities"].items():
        share = answer["x_probabilities"][option] / (1 - answer["x_abstain"])
        assert p == pytest.approx(share, abs=1e-6)
    assert sum(answer["probabilities"].values()) == pytest.approx(1, abs=1e-9)
    assert answer["choice"] == expected["choice"]
    assert answer["confidence"] == choice_confidence(list(answer["probabilities"].values()))


def test_a_score_is_the_expected_level_with_the_original_level_beside_it(answered, native):
    answer, expected = answered["answers"]["s"], native["answers"]["s"]
    levels = list(answer["probabilities"].values())
    assert_close(levels[0], expected["probabilities"]["light"])
    assert answer["score"] == pytest.approx(levels[1] + 2 * levels[2])
    assert answer["legend"] == {"0": "light", "1": "dim", "2": "dark"}
    assert answer["x_level"] == expected["score"]
    assert answer["confidence"] == score_confidence(levels)


def test_the_states_text_stands_before_the_instructions_with_a_newline(served):
    noul = {"n": QUESTIONS["n"]}
    found = served.ask_protocol(official(noul, "Task: open the mail. <pic>"))
    expected = served.ask(ask(noul, text="Task: open the mail."))
    assert_close(found["answers"]["n"]["noul"], expected["answers"]["n"]["noul"])
    assert found["usage"] == expected["usage"]


def test_images_come_in_the_order_of_their_first_mention(served):
    names = ["pat_64x48.png", "gray_160x100.png"]
    assets = {
        f"<{i}>": {"type": "image", "data_base64": base64.b64encode(image_bytes(name)).decode()}
        for i, name in enumerate(names)
    }
    noul = {"n": QUESTIONS["n"]}
    body = {"state": "<1><0>", "questions": noul, "assets": assets}
    urls = ask(noul, names[1])["state"]["images"] + ask(noul, names[0])["state"]["images"]
    expected = served.ask({"state": {"images": urls}, "questions": noul})
    found = served.ask_protocol(body)
    assert_close(found["answers"]["n"]["noul"], expected["answers"]["n"]["noul"])
    assert found["usage"] == expected["usage"]


def test_a_request_without_an_image_is_refused(served):
    with pytest.raises(InvalidRequest, match="send one at least"):
        served.ask_protocol({"state": "text", "questions": QUESTIONS})


def test_a_choice_of_one_option_is_certain_given_no_abstention(served):
    only = {"c": {"type": "choice", "criteria": {"a": None}}}
    answer = served.ask_protocol(official(only))["answers"]["c"]
    assert answer["probabilities"] == {"a": 1}
    assert answer["confidence"] == 1
    assert answer["x_abstain"] > 0


def test_255_options_are_answered_in_one_request(served):
    many = {"c": {"type": "choice", "criteria": {f"o{i}": None for i in range(255)}}}
    answer = served.ask_protocol(official(many))["answers"]["c"]
    assert len(answer["probabilities"]) == 255


def test_entries_of_any_kind_are_text(served):
    structured = {
        "c": {"type": "choice", "instructions": {"q": [1]}, "criteria": {"a": {"r": 1}, "b": None}},
        "s": {"type": "score", "criteria": [{"l": 0}, ["x"]]},
        "n": {"type": "noul", "criteria": {"true": "yes, dark", "false": None}},
    }
    answers = served.ask_protocol(official(structured))["answers"]
    assert answers["s"]["legend"] == {"0": {"l": 0}, "1": ["x"]}
    plain = {"n": {"type": "noul", "instructions": "Yes: yes, dark"}}
    expected = served.ask_protocol(official(plain))["answers"]["n"]
    assert_close(answers["n"], expected)


def test_an_answer_says_that_the_model_read_less_than_an_option(served):
    questions = {
        "c": {"type": "choice", "criteria": {"a": "x" * 250, "b": None}},
        "d": {"type": "choice", "criteria": {"a": "x" * 197, "b": None}},
    }
    answers = served.ask_protocol(official(questions))["answers"]
    assert answers["c"]["x_truncated"] is True
    assert "x_truncated" not in answers["d"]


@pytest.mark.parametrize(
    ("state", "text"),
    [
        ("<pic>", ""),
        ("<pic>\nTask: mail", "Task: mail"),
        ("before <pic> after", "before  after"),
        (["<pic>"], ""),
        (["<pic>", "Task: mail"], "Task: mail"),
        (["<pic>", {"task": "mail"}], '{"task": "mail"}'),
        (["<pic>", "a", "b"], '["a", "b"]'),
        ({"screen": "<pic>", "task": "mail", "note": None}, '{"task": "mail", "note": null}'),
        ({"screens": ["<pic>"], "task": "mail"}, '{"task": "mail"}'),
        ({"screen": "<pic>"}, ""),
        ("", ""),
        ([], "[]"),
    ],
)
def test_the_text_of_a_state_is_what_the_images_leave(state, text):
    assert Mentions({"<pic>": None}).state_text(state) == text


def test_questions_keep_their_reference_as_a_number():
    mentions = Mentions({"pic1": None, "pic10": None})
    assert mentions.named("is pic10 like pic1?") == "is picture 2 like picture 1?"
    assert mentions.named({"pic1": ["pic1", 3]}) == {"pic1": ["picture 1", 3]}


def translated(question):
    """A recorded question in the protocol's grammar, None where that cannot say the same."""
    kind, instructions = question["type"], question["instructions"]
    plain = {"type": kind, "instructions": instructions}
    if kind == "noul":
        return plain if not question.get("region") else None
    if kind == "score":
        levels = question["levels"]
        return plain | {"criteria": levels} if isinstance(levels[0], str) else None
    if "criteria" in question:
        return plain | {"criteria": question["criteria"]}
    options = [entry for entry in question["options"] if not entry.get("abstain")]
    if all("key" in entry and entry["key"] == entry.get("text") for entry in options):
        return plain | {"criteria": {entry["key"]: None for entry in options}}
    return None


def in_official_form(case):
    """The questions of a recorded request that the protocol's grammar can ask."""
    asked = {key: translated(each) for key, each in case["questions"].items()}
    return {key: each for key, each in asked.items() if each}


OFFICIAL = [
    name for name, case in CASES.items() if "video" not in case["state"] and in_official_form(case)
]


@pytest.mark.parametrize("name", OFFICIAL)
def test_recorded_requests_in_the_official_form_are_answered_as_recorded(served, name):
    case = CASES[name]
    questions = in_official_form(case)
    assets = {
        f"<{i}>": {"type": "image", "data_base64": base64.b64encode(image_bytes(image)).decode()}
        for i, image in enumerate(case["state"]["images"])
    }
    body = {"state": list(assets), "questions": questions, "assets": assets}
    answers = served.ask_protocol(body)["answers"]
    for key, answer in answers.items():
        recorded = case["answers"][key]
        if answer["type"] == "noul":
            assert_close(answer["noul"], recorded["noul"])
        elif answer["type"] == "score":
            assert_close(
                list(answer["probabilities"].values()), [*recorded["probabilities"].values()]
            )
            assert answer["x_level"] == recorded["score"]
        else:
            assert_close(answer["x_probabilities"], recorded["probabilities"])
            assert_close(answer["x_abstain"], recorded["abstain"])
            assert answer["choice"] == recorded["choice"]
