"""The protocol's profile: its grammar, tournaments, long states, and what a client may trust."""

import pytest

from system1_core.errors import InvalidRequest, TooLarge

LONG = "the parcel was scanned at the depot and the driver left a note " * 120
NOUL = {"type": "noul", "instructions": "Does it mention a depot?"}
TEAMS = {
    "type": "choice",
    "instructions": "Which team?",
    "criteria": {"billing": "invoices", "technical": "bugs", "other": None},
}


def _ask(served, question, state="I was charged twice.", **fields):
    return served.ask({"state": state, "questions": {"q": question}, "model": "english", **fields})


def _many(count):
    return {
        "type": "choice",
        "criteria": {f"intent {i} topic {i * 7 % 11}": None for i in range(count)},
    }


def test_answers_have_the_official_fields_and_sum_to_one(served):
    body = served.ask(
        {
            "state": "x",
            "questions": {
                "c": TEAMS,
                "s": {"type": "score", "criteria": ["low", {"level": "high"}]},
                "n": {"type": "noul", "criteria": {"true": "it is about money"}},
            },
        }
    )
    answers = body["answers"]
    official = {
        name: {key for key in answer if not key.startswith("x_")}
        for name, answer in answers.items()
    }
    assert official == {
        "c": {"type", "choice", "probabilities", "confidence"},
        "s": {"type", "score", "legend", "probabilities", "confidence"},
        "n": {"type", "noul"},
    }
    assert sum(answers["c"]["probabilities"].values()) == pytest.approx(1)
    assert answers["s"]["legend"] == {"0": "low", "1": {"level": "high"}}
    assert body["usage"]["output_tokens"] == 0


def test_a_missing_instruction_reads_as_an_empty_one(served):
    text = served.processor.prepare
    from system1_core.request import Question, Request

    def ids(instructions):
        question = Question(id="q", type="noul", instructions=instructions)
        request = Request(state="x", questions=(question,), model="english")
        return text(request).prompts[0].token_ids

    assert ids(None) == ids("")


def test_unknown_question_fields_change_nothing(served):
    plain = _ask(served, TEAMS)
    extra = {"option_order": [2, 1, 0], "labels": {"true": "a", "false": "b"}}
    assert _ask(served, TEAMS | extra) == plain


def test_unknown_top_level_fields_change_nothing(served):
    assert _ask(served, TEAMS, max_len=16, lang=7, hooks=[1]) == _ask(served, TEAMS)


def test_renaming_an_id_changes_no_number(served):
    body = {"state": "x", "model": "english"}
    one = served.ask(body | {"questions": {"q": TEAMS}})["answers"]["q"]
    assert served.ask(body | {"questions": {"émoji 🎉": TEAMS}})["answers"]["émoji 🎉"] == one


def test_255_options_run_as_a_tournament_in_heats_of_about_32(served):
    answer = _ask(served, _many(255))["answers"]["q"]
    assert len(answer["probabilities"]) == 255
    assert sum(answer["probabilities"].values()) == pytest.approx(1)
    assert len(answer["x_tournament"]["finalists"]) == 8
    assert answer["x_tournament"]["rounds"] == 1
    assert answer["choice"] in answer["x_tournament"]["finalists"]


def test_100_options_run_in_one_pass(served):
    assert "x_tournament" not in _ask(served, _many(100))["answers"]["q"]


def test_the_tournament_option_splits_smaller_choices_too(served):
    answer = _ask(served.with_options(tournament_group=4), _many(20))["answers"]["q"]
    assert answer["x_tournament"]["rounds"] == 2
    assert len(answer["x_tournament"]["finalists"]) == 2


def test_without_tournament_255_options_are_refused_naming_the_limit(served):
    with pytest.raises(InvalidRequest, match="512"):
        _ask(served.with_options(tournament_group=0), _many(255))


def test_a_tournament_counts_the_tokens_of_all_its_rounds(served):
    heats = _ask(served.with_options(tournament_group=4), _many(8))
    single = _ask(served.with_options(tournament_group=8), _many(8))
    assert heats["usage"]["input_tokens"] > single["usage"]["input_tokens"]


def test_options_that_collapse_into_one_are_reported(served):
    labels = {f"the very same beginning of a label {i}": None for i in range(60)}
    body = _ask(served, {"type": "choice", "criteria": labels})
    assert body["x_usage"]["options"]["q"] == {"total": 60, "distinct": 1, "tokens_per_option": 4}
    assert body["answers"]["q"]["x_truncated_parts"] == ["options"]


def test_a_cut_state_marks_every_answer_it_touched(served):
    body = _ask(served, NOUL, state=LONG)
    assert body["answers"]["q"]["x_truncated"] is True
    assert body["answers"]["q"]["x_truncated_parts"] == ["state"]
    assert body["x_usage"]["truncated_questions"] == ["q"]
    assert body["x_usage"]["state_tokens_dropped"] > 0
    assert body["usage"]["input_tokens"] == 512


def test_an_answer_that_saw_everything_carries_no_mark(served):
    assert "x_truncated" not in _ask(served, NOUL)["answers"]["q"]


def test_reject_refuses_a_long_state_with_the_numbers(served):
    with pytest.raises(TooLarge, match="'q'.*512") as caught:
        _ask(served.with_options(long_state="reject"), NOUL, state=LONG)
    assert "tokens" in caught.value.message


def test_windows_cover_the_whole_state_and_mark_the_answer(served):
    window = served.with_options(long_state="window")
    body = _ask(window, NOUL, state=LONG)
    answer = body["answers"]["q"]
    assert body["x_usage"]["windows"] == answer["x_window"]["count"] > 1
    assert "x_truncated" not in answer
    size = answer["x_window"]["token_end"] - answer["x_window"]["token_start"]
    assert size == 512 - 192 - 8


def test_a_noul_takes_the_window_with_the_highest_probability(served):
    window = served.with_options(long_state="window")
    from system1_core.request import Question, Request

    question = Question(id="q", type="noul", instructions="Does it mention a depot?")
    prepared = window.processor.prepare(Request(state=LONG, questions=(question,), model="english"))
    alone = [
        window.processor.finish(prepared.context, [reading] * len(prepared.prompts))
        .answers[0]
        .probability
        for reading in window.executor.execute(prepared.prompts)
    ]
    answer = _ask(window, NOUL, state=LONG)["answers"]["q"]
    assert answer["noul"] == pytest.approx(max(alone), abs=1e-6)
    assert answer["x_window"]["index"] == alone.index(max(alone))


def test_a_state_that_fits_is_not_split_into_windows(served):
    window = served.with_options(long_state="window")
    assert _ask(window, NOUL) == _ask(served, NOUL)


def test_a_state_of_too_many_windows_is_refused(served):
    with pytest.raises(TooLarge, match="limit 512"):
        _ask(served.with_options(long_state="window"), NOUL, state="depot note " * 50_000)


def test_the_newest_turns_of_a_long_list_survive_the_cut(served):
    from system1_core.request import Question, Request

    question = Question(id="q", type="noul", instructions="x")
    turns = ["word " * 400, "the very last turn"]
    prompt = served.processor.prepare(
        Request(state=turns, questions=(question,), model="english")
    ).prompts[0]
    end = served.processor._parts["english"].tokens.encode('the very last turn"]')
    assert prompt.token_ids[-1 - len(end) : -1] == end


def test_a_single_option_has_probability_and_confidence_one(served):
    answer = _ask(served, {"type": "choice", "criteria": {"only": None}})["answers"]["q"]
    assert answer["probabilities"] == {"only": 1.0}
    assert answer["confidence"] == 1.0


def test_the_answering_checkpoint_is_named(served):
    german = served.ask({"state": "Der Kunde ist sehr verärgert", "questions": {"q": NOUL}})
    assert german["x_routing"]["model"] == "multilingual"


def test_budgets_of_the_options_replace_those_of_the_checkpoint(served):
    wide = served.with_options(max_len=2048)
    assert _ask(wide, NOUL, state=LONG)["usage"]["input_tokens"] > 512


def test_a_state_that_fills_the_row_exactly_is_whole_and_one_token_more_is_cut(served):
    tokens = served.processor._parts["english"].tokens

    def ask(count):
        state = " ".join("1" for _ in range(count))
        return len(tokens.encode(state)), _ask(served, NOUL, state=state)

    used, body = ask(1)
    room = 512 - (body["usage"]["input_tokens"] - used)
    for count, is_whole in ((room, True), (room + 1, False)):
        used, body = ask(count)
        assert used == count
        assert body["usage"]["input_tokens"] == 512
        assert ("x_truncated" not in body["answers"]["q"]) is is_whole
        assert body["x_usage"]["state_tokens_dropped"] == (not is_whole)
