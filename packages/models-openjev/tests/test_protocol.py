"""The protocol's profile: what it accepts beyond the original, official formulas, limits."""

import math

import pytest
from conftest import question

from models_openjev import processor as processor_module
from models_openjev.text import candidate_texts, question_text
from system1_core.answers import choice_confidence, score_confidence
from system1_core.errors import InferenceFailed, InvalidRequest, TooLarge
from system1_core.request import Request

STATE = "The lamp is on and the door is open."
CHOICE = {"type": "choice", "instructions": "What is on?", "criteria": {"lamp": None, "tv": "set"}}
SCORE = {"type": "score", "instructions": "How bright?", "criteria": ["dark", {"l": "bright"}]}
NOUL = {"type": "noul", "instructions": "Is the lamp on?"}


def ask(served, state=STATE, **questions):
    return served.protocol({"state": state, "questions": questions})


def test_answers_have_the_official_fields_and_formulas(package):
    body = ask(package, c=CHOICE, s=SCORE, n=NOUL)
    choice, score, noul = body["answers"].values()
    assert set(choice) == {"type", "choice", "probabilities", "confidence"}
    assert set(score) == {"type", "score", "legend", "probabilities", "confidence"}
    assert set(noul) == {"type", "noul"}
    assert choice["confidence"] == choice_confidence(list(choice["probabilities"].values()))
    assert score["confidence"] == score_confidence(list(score["probabilities"].values()))
    assert score["legend"] == {"0": "dark", "1": {"l": "bright"}}
    assert math.fsum(choice["probabilities"].values()) == pytest.approx(1, abs=1e-12)
    assert body["x_metadata"]["candidate_sequences"] == 5


def test_a_noul_is_the_sigmoid_of_its_score(package):
    request = Request(state=STATE, questions=(question(),))
    prepared = package.processor.prepare(request)
    (score,) = package.executor.execute(prepared.prompts)
    (answer,) = package.processor.finish(prepared.context, [score]).answers
    expected = 1 / (1 + math.exp(-score / package.processor._source.temperature))
    assert answer.probability == pytest.approx(expected, abs=1e-12)


def test_usage_counts_every_candidate_whole(package):
    request = Request(state=STATE, questions=(question("choice", criteria={"a": None, "b": None}),))
    prompts = package.processor.prepare(request).prompts
    expected = sum(len(prompt.token_ids) for prompt in prompts)
    assert package.answer(request).input_tokens == expected


def test_without_instructions_the_question_is_empty():
    assert question_text(question("choice", instructions=None, criteria={"a": None})) == (
        "Question: \n"
    )


@pytest.mark.parametrize(
    ("criteria", "text"),
    [
        ({"true": "lit"}, "Question: Is it?\nYes means: lit\n"),
        ({"false": "dark", "true": None}, "Question: Is it?\nNo means: dark\n"),
        ({"false": "dark", "true": "lit"}, "Question: Is it?\nYes means: lit\nNo means: dark\n"),
        (None, "Question: Is it?\n"),
    ],
)
def test_sides_of_a_noul_are_shown_where_they_are_given(criteria, text):
    assert question_text(question(criteria=criteria)) == text


def test_one_option_and_one_level_are_certain(package):
    body = ask(
        package,
        c={"type": "choice", "criteria": {"only": None}},
        s={"type": "score", "criteria": ["only"]},
    )
    choice, score = body["answers"].values()
    assert (choice["probabilities"], choice["confidence"]) == ({"only": 1.0}, 1.0)
    assert (score["score"], score["confidence"]) == (0.0, 1.0)


def test_255_options_work(package):
    criteria = {f"option {index}": None for index in range(255)}
    (answer,) = ask(package, q={"type": "choice", "criteria": criteria})["answers"].values()
    assert list(answer["probabilities"]) == list(criteria)
    assert math.fsum(answer["probabilities"].values()) == pytest.approx(1, abs=1e-12)


def test_the_first_of_equal_options_is_chosen(package):
    context = package.processor.prepare(
        Request(state="x", questions=(question("choice", criteria={"b": None, "a": None}),))
    ).context
    (answer,) = package.processor.finish(context, [1.5, 1.5]).answers
    assert answer.choice == "b"


def test_a_score_that_is_not_finite_is_an_internal_error(package, caplog):
    context = package.processor.prepare(Request(state="x", questions=(question(),))).context
    with pytest.raises(InferenceFailed, match="^inference failed$"):
        package.processor.finish(context, [float("nan")])
    assert "not finite" in caplog.text


def test_a_candidate_at_the_limit_is_answered_and_one_token_more_is_refused(package):
    def lengths(words):
        state = " ".join(["0"] * words)
        return package.processor.prepare(Request(state=state, questions=(question(),))).prompts

    room = 4096 - len(lengths(1)[0].token_ids)
    assert len(lengths(1 + room // 2)[0].token_ids) in (4095, 4096)
    with pytest.raises(InvalidRequest, match=r"'q': a candidate takes at least \d+ tokens.* 4096"):
        lengths(2 + room // 2)


def test_a_long_state_is_refused_before_its_candidates_are_encoded(package, monkeypatch):
    monkeypatch.setattr(package.processor._tokens, "candidates", lambda question: 1 / 0)
    with pytest.raises(InvalidRequest, match="limit 4096"):
        package.processor.prepare(Request(state="0 " * 5000, questions=(question(),)))


def test_a_request_of_too_many_tokens_in_all_is_refused(package, monkeypatch):
    monkeypatch.setattr(processor_module, "MAX_REQUEST_TOKENS", 300)
    questions = (question("choice", criteria={str(index): None for index in range(9)}),)
    with pytest.raises(TooLarge, match="limit 300: ask in several requests"):
        package.processor.prepare(Request(state=STATE, questions=questions))


def test_candidates_are_keyed_by_their_names_byte_for_byte(package):
    criteria = {"Ü ": None, "u\u0308": None, "10": "", "9": {}}
    (answer,) = ask(package, q=CHOICE | {"criteria": criteria})["answers"].values()
    assert list(answer["probabilities"]) == list(criteria)


def test_a_description_of_nothing_still_has_its_colon():
    texts = candidate_texts(question("choice", criteria={"on": "", "off": None}))
    assert [text.splitlines()[0] for text in texts] == [
        "Proposed answer: on: ",
        "Proposed answer: off",
    ]
