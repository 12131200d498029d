"""What must not change an answer: questions beside it, their order, other clients' requests."""

import random

import pytest
from conftest import BASE, IMAGE_CASES, TEXT_CASES, body, body_of, data_url, load_of, question

from models_cuas1.load import load_executor
from models_cuas1.prompt import MULTIMODAL, TEXT, goal_of, labels_of, text_parts
from models_qwen3_5.chat import encode, load_tokenizer

TOLERANCE = 1e-5
PICTURE = {"image": data_url("images/small.png")}
QUESTIONS = {
    "save": question(instructions="Save.", criteria={"s": "Save", "d": "Discard"}),
    "none": question(instructions=None, criteria={"x": None}),
    "many": question(criteria={f"o{i}": f"Choose action {i}" for i in range(26)}),
    "same": question(instructions="Save.", criteria={"s": "Save", "d": "Discard"}),
}
STATES = pytest.mark.parametrize("state", ["Window: save?", PICTURE], ids=["text", "picture"])


def ask(served, state, questions):
    answers = served.ask_reference(body(state, **questions))["answers"]
    return {name: list(answer["probabilities"].values()) for name, answer in answers.items()}


def distance(one, other):
    return max(abs(a - b) for a, b in zip(one, other, strict=True))


@STATES
def test_questions_beside_it_and_their_order_change_nothing(served, state):
    together = ask(served, state, QUESTIONS)
    backwards = ask(served, state, dict(reversed(QUESTIONS.items())))
    for name, asked in QUESTIONS.items():
        assert distance(backwards[name], together[name]) < TOLERANCE
        assert distance(ask(served, state, {name: asked})[name], together[name]) < TOLERANCE
    assert distance(together["same"], together["save"]) < TOLERANCE


@STATES
def test_the_id_of_a_question_is_not_shown(served, state):
    one, other = (served.prepare(body(state, **{name: question()})) for name in ("a", "b"))
    assert one.prompts[0].token_ids == other.prompts[0].token_ids


def test_the_order_of_options_is_part_of_what_is_asked(served):
    forwards, backwards = (
        served.prepare(body("x", q=question(criteria=dict(order)))).prompts[0].token_ids
        for order in ((("a", "A"), ("b", "B")), (("b", "B"), ("a", "A")))
    )
    assert forwards != backwards


@pytest.mark.parametrize("cases", [TEXT_CASES[:12], IMAGE_CASES], ids=[TEXT, MULTIMODAL])
def test_requests_of_other_clients_in_one_batch_change_nothing(served, cases):
    """All recorded requests in one shuffled pass give the recorded answers."""
    prompts, expected = [], []
    for case in cases:
        prompts += served.prepare(body_of(case)).prompts
        expected += [entry["letter_logits"] for entry in case["questions"]]
    order = random.Random(0).sample(range(len(prompts)), len(prompts))
    outputs = served.executor.execute([prompts[place] for place in order])
    for place, found in zip(order, outputs, strict=True):
        assert distance(found, expected[place]) < 2e-3


def test_questions_about_one_picture_share_it(served):
    prompts = served.prepare(body(PICTURE, **QUESTIONS)).prompts
    cost = sum(served.executor.cost(prompts[:i], prompt) for i, prompt in enumerate(prompts))
    shared = prompts[0].images[0].stop
    assert cost <= sum(prompt.num_tokens for prompt in prompts) - 3 * shared


def test_the_count_of_tokens_has_no_discount_for_sharing(served):
    prompts = served.prepare(body(PICTURE, **QUESTIONS)).prompts
    usage = served.ask_reference(body(PICTURE, **QUESTIONS))["usage"]
    assert usage == {"input_tokens": sum(p.num_tokens for p in prompts), "output_tokens": 0}


def test_the_modalities_never_share_a_batch(served):
    keys = {served.prepare(body(state)).prompts[0].batch_key for state in ("x", PICTURE)}
    assert keys == {TEXT, MULTIMODAL}


@pytest.mark.parametrize(
    "state",
    [
        "",
        "\n",
        "\n\n\n",
        " ",
        "x\n",
        "x \n \n",
        "\u0301x",
        ":",
        "e\u0301",
        "Options:\nA. x\n\n",
        "<|im_end|>",
    ],
    ids=repr,
)
def test_a_prompt_in_parts_has_the_tokens_of_the_whole(served, state):
    tokenizer = load_tokenizer(BASE)
    for goal in ("", "Go.", "x\n"):
        parts = text_parts(goal, state, ["a", "b"])
        whole = encode(tokenizer, "".join(parts))
        assert [token for part in parts for token in encode(tokenizer, part)] == whole


def test_prompts_have_the_tokens_of_the_whole_text_whatever_the_state(served):
    draw, tokenizer = random.Random(0), load_tokenizer(BASE)
    odd = [*map(chr, range(128)), *"\x85\xa0\u2028\u0301\u0308é字ก็🙂", "\n\n", "<|im_end|>", " the"]
    for _ in range(150):
        state, goal = ("".join(draw.choices(odd, k=draw.randint(0, 12))) for _ in range(2))
        asked = {"q": question(instructions=goal, criteria={"a": state or "-", goal or "b": None})}
        (prompt,) = served.processor.prepare(served.protocol(body(state, **asked))).prompts
        (each,) = served.protocol(body(state, **asked)).questions
        whole = "".join(text_parts(goal_of(each), state, labels_of(each)))
        assert prompt.token_ids == encode(tokenizer, whole), repr((state, goal))


def test_warm_up_runs_both_networks(served):
    served.executor.warmup()


def test_deterministic_serving_runs_each_prompt_alone():
    assert load_executor(load_of(deterministic=True)).max_batch_prompts == 1
