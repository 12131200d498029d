"""Requests to answers: what may and may not move them, and every limit."""

import pytest

from models_mini.cache import ENTRY_BYTES
from system1_core import InvalidRequest, Question
from system1_core.answers import fault

STATE = "I was charged twice, please give me my money back."
TEAMS = {"billing": "charges and refunds", "technical": "errors and crashes", "sales": None}
QUESTIONS = {
    "team": {"type": "choice", "instructions": "Which team?", "criteria": TEAMS},
    "level": {"type": "score", "instructions": "How urgent?", "criteria": ["low", "mid", "high"]},
    "refund": {"type": "noul", "instructions": "Does the customer ask for a refund?"},
}
NEAR = 1e-5


def numbers(answer):
    """Probabilities in a fixed order, whatever the type."""
    if hasattr(answer, "probability"):
        return [answer.probability]
    found = answer.probabilities
    return [found[name] for name in sorted(found)] if hasattr(found, "keys") else list(found)


def close(one, other):
    return numbers(one) == pytest.approx(numbers(other), abs=NEAR)


def test_answers_pass_the_engines_own_check(mini):
    result = mini.result(STATE, QUESTIONS)
    asked = [Question(id=id, **fields) for id, fields in QUESTIONS.items()]
    assert [fault(one, answer) for one, answer in zip(asked, result.answers, strict=True)] == [
        None
    ] * 3


def test_ids_and_order_of_questions_change_nothing(mini):
    first = mini.result(STATE, QUESTIONS).answers
    renamed = {f"{id} 안녕 🙂": fields for id, fields in reversed(QUESTIONS.items())}
    second = mini.result(STATE, renamed).answers[::-1]
    assert all(close(one, other) for one, other in zip(first, second, strict=True))


def test_questions_do_not_influence_each_other(mini):
    together = mini.result(STATE, QUESTIONS).answers
    for (id, fields), answer in zip(QUESTIONS.items(), together, strict=True):
        mini.processor.cache = type(mini.processor.cache)(0)
        assert close(mini.result(STATE, {id: fields}).answers[0], answer)


def test_order_of_options_changes_nothing(mini):
    one = mini.ask(STATE, type="choice", criteria=TEAMS)
    other = mini.ask(STATE, type="choice", criteria=dict(reversed(TEAMS.items())))
    assert list(other) == list(reversed(TEAMS))
    assert {name: other[name] for name in one} == pytest.approx(one, abs=NEAR)


def test_requests_batched_together_answer_as_alone(mini):
    states = [STATE, "How do I change my picture?", "", "word " * 300, "ok"]
    alone = [mini.result(state, QUESTIONS).answers for state in states]
    mini.processor.cache = type(mini.processor.cache)(2**20)
    prepared = [mini.prepare(state, QUESTIONS) for state in states]
    outputs = iter(mini.executor.execute([p for one in prepared for p in one.prompts]))
    for one, expected in zip(prepared, alone, strict=True):
        result = mini.processor.finish(one.context, [next(outputs) for _ in one.prompts])
        assert all(close(a, b) for a, b in zip(result.answers, expected, strict=True))


def test_cached_options_answer_the_same_and_only_the_state_runs_again(mini):
    first = mini.result(STATE, QUESTIONS)
    again = mini.prepare(STATE, QUESTIONS)
    assert len(again.prompts) == 1
    second = mini.processor.finish(again.context, mini.executor.execute(again.prompts))
    assert second.input_tokens == first.input_tokens
    assert all(close(a, b) for a, b in zip(first.answers, second.answers, strict=True))


def test_cache_forgets_the_oldest_within_its_bytes(new_mini):
    mini = new_mini(cache_bytes=3 * (ENTRY_BYTES + 384 * 4 + 4 * 10))
    for index in range(5):
        mini.ask(STATE, type="choice", criteria={f"option {index}": None})
        assert mini.processor.cache.num_bytes <= mini.processor.cache.max_bytes
    assert len(mini.processor.cache) == 3
    assert mini.processor.cache.get("option 0") is None
    assert mini.processor.cache.get("option 4") is not None


def test_single_option_has_probability_one(mini):
    assert mini.ask(STATE, type="choice", criteria={"only": None}) == {"only": 1.0}
    assert mini.ask(STATE, type="score", criteria=["only"]) == [1.0]


def test_255_options_and_ten_levels_sum_to_one(mini):
    many = {f"topic {index}": None for index in range(255)}
    assert sum(mini.ask(STATE, type="choice", criteria=many).values()) == pytest.approx(1)
    assert sum(
        mini.ask(STATE, type="score", criteria=[str(i) for i in range(10)])
    ) == pytest.approx(1)


def test_option_names_come_back_byte_for_byte(mini):
    names = {" Ä B. ": None, "ﬁ": None, "🙂": None, "": None}
    assert list(mini.ask(STATE, type="choice", criteria=names)) == list(names)


@pytest.mark.parametrize("state", ["", {}, [], {"a": {"b": [1, None, True]}}, ["x", {"y": "z"}]])
@pytest.mark.parametrize("instructions", [None, "", "Which?", {"ask": "which"}, ["which", "one"]])
def test_any_entry_is_answered(mini, state, instructions):
    result = mini.result(
        state,
        {
            "c": {
                "type": "choice",
                "instructions": instructions,
                "criteria": {"a": {"b": 1}, "c": [2]},
            },
            "s": {"type": "score", "instructions": instructions, "criteria": [{"l": 0}, ["l", 1]]},
            "n": {"type": "noul", "instructions": instructions, "criteria": {"true": {"x": True}}},
        },
    )
    assert all(0 <= value <= 1 for answer in result.answers for value in numbers(answer))


@pytest.mark.parametrize("criteria", [None, {}, {"true": "it is asked"}, {"false": "not asked"}])
def test_noul_without_a_side_depends_on_the_text(mini, criteria):
    question = {"instructions": "Does the customer ask for a refund?", "criteria": criteria}
    asked = mini.ask(STATE, type="noul", **question)
    other = mini.ask("How do I change my profile picture?", type="noul", **question)
    assert asked > 0.5 > other


def test_long_state_is_read_in_windows_and_says_so(mini):
    answers = mini.result("The parcel is late. " * 300, QUESTIONS).answers
    assert [answer.extra["x_windows"] for answer in answers] == [4, 4, 4]
    assert all("x_windows" not in answer.extra for answer in mini.result(STATE, QUESTIONS).answers)


def test_every_window_counts(mini):
    start = mini.ask("The weather is nice. " * 200, type="choice", criteria=TEAMS)
    end = "The weather is nice. " * 200 + "The app crashes with an error. " * 60
    changed = mini.ask(end, type="choice", criteria=TEAMS)
    assert changed["technical"] > start["technical"]


def test_too_long_state_names_value_and_limit(mini):
    with pytest.raises(InvalidRequest, match="state: 16385 tokens, limit 16384") as caught:
        mini.result("word " * 16385, QUESTIONS)
    assert caught.value.problems[0].loc == ("body", "state")


def test_a_state_far_too_long_is_refused_by_its_characters(mini):
    with pytest.raises(InvalidRequest, match="state: 120001 characters, limit 120000"):
        mini.result("x" * 120_001, QUESTIONS)


def test_a_candidate_far_too_long_is_refused_by_its_characters(mini):
    question = {"type": "choice", "criteria": {"a": "x" * 12_001, "b": None}}
    with pytest.raises(InvalidRequest, match=r"option 'a': \d+ characters, limit 12000"):
        mini.result(STATE, {"q3": question})


@pytest.mark.parametrize(
    ("fields", "what"),
    [
        ({"type": "choice", "criteria": {"a": None, "b": "word " * 511}}, "option 'b': 51"),
        ({"type": "score", "criteria": ["low", "word " * 511]}, "level '1': 511"),
        ({"type": "noul", "instructions": "word " * 511}, "instructions with both sides: 511"),
    ],
)
def test_too_long_candidate_names_question_value_and_limit(mini, fields, what):
    with pytest.raises(InvalidRequest, match=rf"question 'q3': .*{what}.* tokens, limit 510"):
        mini.result(STATE, {"q3": fields})


def test_tokens_are_integers_and_count_every_text_once(mini):
    result = mini.result(
        "one two", {"q": {"type": "choice", "criteria": {"red": None, "blue": None}}}
    )
    assert result.input_tokens == 4 + 3 + 3
    assert result.output_tokens == 0


def test_prepare_needs_no_lock_between_threads(mini):
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda _: mini.result(STATE, QUESTIONS), range(12)))
    first = [numbers(answer) for answer in results[0].answers]
    for result in results:
        for answer, expected in zip(result.answers, first, strict=True):
            assert numbers(answer) == pytest.approx(expected, abs=NEAR)
