"""What the original accepts is accepted, what it crashes on or corrupts is refused."""

import pytest
from conftest import ask, data_url, image_bytes

from models_omnijev.grammar import read_question
from models_omnijev.questions import REFUSED_STRINGS
from system1_core.errors import InvalidRequest, TooLarge
from system1_core.wire.dialect import Body, RequestLimits

NOUL = {"type": "noul", "instructions": "x"}
CHOICE = {"type": "choice", "instructions": "x"}
SCORE = {"type": "score", "instructions": "x"}
BOX = {"box": [0, 0, 1, 1]}


def texts(question):
    return read_question("q", question).asked.texts


def keys(question):
    return read_question("q", question).asked.keys


@pytest.mark.parametrize(
    ("question", "found_keys", "found_texts"),
    [
        (
            CHOICE | {"criteria": {"a": None, "b": "", "c": "r"}},
            ("a", "b", "c"),
            ("a", "b", "c: r"),
        ),
        (CHOICE | {"criteria": {"a": 3}}, ("a",), ("a: 3",)),
        (CHOICE | {"options": [{"text": "t"}], "criteria": {"a": None}}, ("t",), ("t",)),
        (CHOICE | {"options": [{"abstain": True}, {}]}, ("option_1",), ("",)),
        (CHOICE | {"options": [{"key": 7, "text": 8}]}, (7,), ("8",)),
        (CHOICE | {"options": [{"text": "t", "region": BOX}]}, ("t",), ("region [0,0,1,1]",)),
        (CHOICE | {"options": [{"text": "t", "region": {}}]}, ("t",), ("t",)),
        (CHOICE | {"options": [{"key": "k"}, {"key": "k"}]}, ("k", "k"), ("", "")),
        (SCORE | {"levels": [1, "b", 2.5]}, (1, "b", 2.5), ("1", "b", "2.5")),
        (SCORE | {"levels": [], "criteria": {"low": "x", "high": "y"}}, ("low", "high"), None),
        (SCORE | {"levels": ["a"], "criteria": ["ignored"]}, ("a",), ("a",)),
        (NOUL | {"region": None}, ("yes",), ("",)),
        (NOUL | {"region": {"box": [0.5, 1.5, -0.5, 9e8]}}, ("yes",), None),
    ],
)
def test_every_form_of_options_is_read(question, found_keys, found_texts):
    assert keys(question) == found_keys
    assert texts(question) == (found_texts or texts(question))


def test_box_coordinates_round_half_to_even():
    question = NOUL | {"region": {"box": [0.5, 1.5, 2.5, -0.5]}}
    assert texts(question) == ("region [0,2,2,0]",)


def test_option_texts_are_cut_after_the_rubric_is_joined():
    (text,) = texts(CHOICE | {"criteria": {"key": "𝒳" * 300}})
    assert text == "key: " + "𝒳" * 195


def test_keys_are_never_cut():
    assert keys(CHOICE | {"criteria": {"k" * 300: None}}) == ("k" * 300,)


@pytest.mark.parametrize(
    "question",
    [
        {"type": "noul"},
        {"instructions": "x"},
        {"type": "boolean", "instructions": "x"},
        NOUL | {"instructions": None},
        NOUL | {"instructions": ["x"]},
        NOUL | {"region": {"box": [1, 2, 3]}},
        NOUL | {"region": {"box": [1, 2, 3, 4, 5]}},
        NOUL | {"region": {"box": [1, 2, 3, True]}},
        NOUL | {"region": {"box": [1, 2, 3, 2e9]}},
        NOUL | {"region": {"x": 1}},
        NOUL | {"region": [1, 2, 3, 4]},
        CHOICE,
        CHOICE | {"criteria": ["a", "b"]},
        CHOICE | {"criteria": {}},
        CHOICE | {"options": []},
        CHOICE | {"options": None},
        CHOICE | {"options": {"a": None}},
        CHOICE | {"options": ["a"]},
        CHOICE | {"options": [{"abstain": True}]},
        CHOICE | {"options": [{"key": ["a"]}]},
        SCORE,
        SCORE | {"levels": []},
        SCORE | {"levels": "abc"},
        SCORE | {"levels": [["a"]]},
        SCORE | {"criteria": ["a", "b"]},
        "noul",
    ],
)
def test_what_the_original_cannot_answer_is_refused(question):
    with pytest.raises(InvalidRequest) as refused:
        read_question("q", question)
    assert refused.value.problems[0].loc[:3] == ("body", "questions", "q")


@pytest.mark.parametrize("text", REFUSED_STRINGS)
@pytest.mark.parametrize(
    "place",
    [
        lambda text: NOUL | {"instructions": f"a {text} b"},
        lambda text: CHOICE | {"criteria": {text: None}},
        lambda text: CHOICE | {"options": [{"key": "k", "text": text}]},
        lambda text: SCORE | {"levels": ["a", text]},
    ],
    ids=["instructions", "criteria", "options", "levels"],
)
def test_marker_strings_are_refused(served, text, place):
    with pytest.raises(InvalidRequest, match="marks the prompt"):
        served.ask(ask({"q": place(text)}))


def test_a_marker_string_in_the_states_text_is_refused(served):
    with pytest.raises(InvalidRequest, match="marks the prompt"):
        served.ask(ask({"q": NOUL}, text="look: <|image_pad|>"))


def test_other_special_strings_are_text(served):
    assert served.ask(ask({"q": NOUL | {"instructions": "<|im_end|><think>"}}))["answers"]["q"]


def test_the_states_text_precedes_the_instructions(served):
    joined = served.ask(ask({"q": NOUL | {"instructions": "Task: mail\nDone."}}))
    apart = served.ask(ask({"q": NOUL | {"instructions": "Done."}}, text="Task: mail"))
    assert joined == apart


def test_numeric_instructions_are_text(served):
    number = served.ask(ask({"q": NOUL | {"instructions": 12}}))
    assert number == served.ask(ask({"q": NOUL | {"instructions": "12"}}))


def test_duplicate_keys_keep_the_last_value_and_the_winners_name(served):
    options = [{"key": "k", "text": "alpha"}, {"key": "k", "text": "beta"}]
    answer = served.ask(ask({"q": CHOICE | {"options": options}}))["answers"]["q"]
    apart = [entry | {"key": entry["text"]} for entry in options]
    expected = served.ask(ask({"q": CHOICE | {"options": apart}}))["answers"]["q"]
    assert answer["choice"] == "k"
    assert answer["probabilities"] == {"k": expected["probabilities"]["beta"]}


def test_unknown_fields_are_ignored(served):
    body = ask({"q": NOUL | {"x": 1}}, other=2) | {"nonce": 3}
    assert served.ask(body) == served.ask(ask({"q": NOUL}))


@pytest.mark.parametrize(
    "state",
    [
        None,
        "text",
        {},
        {"images": []},
        {"images": "data:"},
        {"images": [1]},
        {"images": ["https://example.org/a.png"]},
        {"images": ["data:image/png;base64,!!!!"]},
        {"images": ["data:image/png;base64,AAAA"]},
        {"images": [data_url(image_bytes("pat_64x48.png"))], "text": 5},
    ],
)
def test_a_state_without_images_of_a_known_kind_is_refused(served, state):
    with pytest.raises(InvalidRequest):
        served.parse({"state": state, "questions": {"q": NOUL}})


@pytest.mark.parametrize("questions", [None, {}, [NOUL]])
def test_a_body_without_questions_is_refused(served, questions):
    with pytest.raises(InvalidRequest):
        served.parse(ask(questions))


@pytest.mark.parametrize(
    ("questions", "limit"),
    [
        ({str(i): NOUL for i in range(65)}, "64"),
        ({"i" * 257: NOUL}, "256"),
        ({"q": SCORE | {"levels": list(range(256))}}, "255"),
        ({str(q): SCORE | {"levels": list(range(205))} for q in range(5)}, "1024"),
        ({"q": NOUL | {"instructions": "x" * 8193}}, "8192"),
        ({"q": CHOICE | {"criteria": {"k": "x" * 8193}}}, "8192"),
        ({"q": NOUL | {"instructions": "€" * 8000}}, "8192"),
    ],
    ids=["questions", "id", "levels", "options in all", "characters", "rubric", "tokens"],
)
def test_what_is_over_a_limit_is_refused_with_the_limit(served, questions, limit):
    with pytest.raises(InvalidRequest, match=f"limit {limit}"):
        served.ask(ask(questions))


def test_processed_tokens_have_a_limit(served):
    questions = {
        f"{i}": SCORE | {"instructions": f"{i}" + "x" * 4000, "levels": list(range(9))}
        for i in range(5)
    }
    with pytest.raises(InvalidRequest, match="limit 65536"):
        served.ask(ask(questions))


def test_tokens_of_options_have_a_limit(served):
    options = {"criteria": {f"{i}€" * 40: None for i in range(200)}}
    with pytest.raises(InvalidRequest, match=r"limit (16384|8192)"):
        served.ask(ask({"q": CHOICE | options, "r": CHOICE | options}))


def test_bodies_and_images_have_a_size_limit(served):
    with pytest.raises(TooLarge, match="12582912"):
        served.reference.parse(Body(json={}, num_bytes=12 * 2**20 + 1), RequestLimits())
    large = data_url(b"\x89PNG\r\n\x1a\n" + bytes(8 * 2**20))
    with pytest.raises(TooLarge, match="8388608"):
        served.parse({"state": {"images": [large]}, "questions": {"q": NOUL}})


def test_the_batch_route_takes_states(served):
    body = ask({"q": NOUL})
    states = {"states": [body["state"]] * 2, "questions": body["questions"]}
    requests = served.reference.parse_batch(Body(json=states), RequestLimits())
    results = [served.answer(request) for request in requests]
    rendered = served.reference.render_batch(requests, results, "omnijev")
    assert rendered["results"] == [served.ask(body)] * 2
    with pytest.raises(InvalidRequest, match="states"):
        served.reference.parse_batch(Body(json=states | {"states": []}), RequestLimits())
