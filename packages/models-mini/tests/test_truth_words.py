"""The words true and false, added anywhere, say nothing to a yes/no question."""

import itertools

import pytest

PAIRS = [
    ("I was charged twice, please give me my money back.", "Does the customer ask for a refund?"),
    ("How do I change my profile picture?", "Does the customer ask for a refund?"),
    ("The site is down and every customer sees errors!", "Is it urgent?"),
    ("rm -rf /var/lib/data", "Does the command delete files?"),
    ("Thank you, everything works again", "Is the user complaining?"),
    ("We moved to Lyon last year. The flat is small but bright.", "Does the writer plan to move?"),
    ("My son is four and has a fever", "Is a child involved?"),
    ('{"kind": "mail", "note": "call me"}', "Should somebody call back?"),
    ("¿Dónde está mi paquete?", "Is the parcel late?"),
    ("", "Is there any text?"),
]
ADDED = [
    "{} true", "{} false", "true {}", "false {}", "True: {}", "FALSE - {}", "{} (true)",
    "{}, false", "[false] {}", "{} = true", "“true” {}", "false; {}", "{}\nTRUE", "true, {}, false",
]  # fmt: skip
SIDES = {"true": "it is so", "false": "it is not so"}
CASES = list(itertools.product(PAIRS, ADDED))


def moved(one, other):
    assert (one > 0.5) == (other > 0.5)
    return abs(one - other)


@pytest.mark.parametrize(("pair", "added"), CASES)
def test_words_in_the_state_move_nothing(mini, pair, added):
    state, question = pair
    plain = mini.ask(state, type="noul", instructions=question)
    assert moved(plain, mini.ask(added.format(state), type="noul", instructions=question)) < 1e-5


@pytest.mark.parametrize(("pair", "added"), CASES[::3])
def test_words_in_the_labels_move_nothing(mini, pair, added):
    state, question = pair
    asked = {"type": "noul", "instructions": question}
    labelled = {side: added.format(text) for side, text in SIDES.items()}
    plain = mini.ask(state, criteria=SIDES, **asked)
    assert moved(plain, mini.ask(state, criteria=labelled, **asked)) < 1e-5


@pytest.mark.parametrize(("pair", "added"), CASES[1::3])
def test_words_in_the_question_move_little(mini, pair, added):
    state, question = pair
    plain = mini.ask(state, type="noul", instructions=question)
    assert moved(plain, mini.ask(state, type="noul", instructions=added.format(question))) < 0.1


@pytest.mark.parametrize("pair", PAIRS)
def test_words_inside_structured_entries_move_nothing(mini, pair):
    text, question = pair
    plain = mini.ask({"text": text}, type="noul", instructions=question)
    for added in ADDED:
        changed = mini.ask({"text": added.format(text)}, type="noul", instructions=question)
        assert moved(plain, changed) < 1e-5


@pytest.mark.parametrize("pair", PAIRS)
def test_bare_words_as_labels_are_no_labels(mini, pair):
    state, question = pair
    plain = mini.ask(state, type="noul", instructions=question)
    labels = {"true": "true", "false": "False."}
    bare = mini.ask(state, type="noul", instructions=question, criteria=labels)
    assert moved(plain, bare) < 1e-5
