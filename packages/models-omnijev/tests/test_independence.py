"""What must change nothing: neighbours, order, batch borders, and how a tree is cut."""

import random

import pytest
import torch
from conftest import CASES, MODEL, ask, assert_close, body_of

from models_omnijev.executor import OmnijevExecutor
from models_omnijev.pictures import make_pictures
from models_qwen3_5.chat import encode, load_tokenizer, place_images
from models_qwen3_5.planner import Planner
from models_qwen3_5.sequence import make_key

WORDS = ["alpha", "beta", "gamma delta", "", "a much longer option than the others", "x"]
CHOICE = {
    "type": "choice",
    "instructions": "Which word?",
    "options": [{"key": str(i), "text": text} for i, text in enumerate(WORDS)],
}
NOUL = {"type": "noul", "instructions": "It is dark."}
SCORE = {"type": "score", "instructions": "How dark?", "levels": ["light", "dim", "dark"]}
QUESTIONS = {"c": CHOICE, "n": NOUL, "s": SCORE}


@pytest.fixture
def copied(monkeypatch):
    """How often something was copied to the host."""
    counts = []
    for name in ("tolist", "cpu", "item", "__bool__"):
        real = getattr(torch.Tensor, name)

        def counted(self, *given, real=real, name=name):
            counts.append(name)
            return real(self, *given)

        monkeypatch.setattr(torch.Tensor, name, counted)
    return counts


@pytest.fixture
def together(served):
    return served.ask(ask(QUESTIONS))["answers"]


def test_a_question_alone_answers_as_among_others(served, together):
    for name, question in QUESTIONS.items():
        alone = served.ask(ask({name: question}))["answers"]
        assert_close(alone[name], together[name], 1e-4)


def test_the_order_of_questions_changes_nothing(served, together):
    backwards = served.ask(ask(dict(reversed(QUESTIONS.items()))))["answers"]
    for name, answer in together.items():
        assert_close(backwards[name], answer, 1e-4)


def test_the_order_of_options_changes_nothing(served, together):
    turned = CHOICE | {"options": CHOICE["options"][::-1]}
    found = served.ask(ask({"c": turned}))["answers"]["c"]
    assert found["choice"] == together["c"]["choice"]
    for key, p in together["c"]["probabilities"].items():
        assert found["probabilities"][key] == pytest.approx(p, abs=1e-4)


@pytest.mark.parametrize("max_batch", [1, 2, 5])
def test_rows_of_a_question_in_different_batches_answer_alike(served, together, max_batch):
    found = served.ask(ask(QUESTIONS), max_batch=max_batch)["answers"]
    assert_close(found, together, 1e-4)


@pytest.mark.parametrize(
    "planner",
    [Planner(min_saved=1), Planner(min_saved=10**9), Planner(min_saved=1, cut_multiple=64)],
    ids=["every token shared", "nothing shared", "cut at multiples of 64"],
)
def test_how_the_tree_is_cut_changes_nothing(served, together, planner, monkeypatch):
    monkeypatch.setattr(served.executor.backbone, "planner", planner)
    assert_close(served.ask(ask(QUESTIONS))["answers"], together, 1e-4)


def test_requests_of_different_clients_share_a_batch(served):
    bodies = [ask(QUESTIONS), body_of(CASES["order_ab"]), body_of(CASES["panels_2"])]
    requests = [served.parse(body) for body in bodies]
    prepared = [served.processor.prepare(request) for request in requests]
    outputs = served.executor.execute([p for each in prepared for p in each.prompts])
    for body, request, each in zip(bodies, requests, prepared, strict=True):
        mine, outputs = outputs[: len(each.prompts)], outputs[len(each.prompts) :]
        result = served.processor.finish(each.context, mine)
        found = served.reference.render(request, result, "omnijev")["answers"]
        assert_close(found, served.ask(body)["answers"], 1e-4)


def test_equal_options_run_once_and_answer_equally(served):
    options = [{"key": key, "text": "same"} for key in "abc"]
    request = served.parse(ask({"q": CHOICE | {"options": options}}))
    assert len(served.processor.prepare(request).prompts) == 1
    answer = served.ask(ask({"q": CHOICE | {"options": options}}))["answers"]["q"]
    assert len(set(answer["probabilities"].values())) == 1
    assert answer["choice"] == "a"


def test_equal_texts_of_a_level_and_an_option_are_different_rows(served):
    questions = {
        "c": {"type": "choice", "instructions": "x", "criteria": {"dark": None}},
        "s": {"type": "score", "instructions": "x", "levels": ["dark"]},
    }
    assert len(served.processor.prepare(served.parse(ask(questions))).prompts) == 2


def test_a_deterministic_executor_runs_rows_alone_with_equal_bits(served):
    alone = OmnijevExecutor(
        served.executor.backbone,
        served.executor.option_head,
        served.executor.ordinal_head,
        is_deterministic=True,
    )
    assert alone.max_batch_prompts == 1
    prompts = served.processor.prepare(served.parse(ask(QUESTIONS))).prompts
    first, second = ([alone.execute([p])[0] for p in prompts] for _ in range(2))
    assert first == second


def test_sixteen_neighbours_leave_the_answer_of_a_request_alone(served, together):
    many = {f"q{i}": CHOICE | {"instructions": f"Which word, number {i}?"} for i in range(16)}
    found = served.ask(ask({**many, **QUESTIONS}))["answers"]
    for name, answer in together.items():
        assert_close(found[name], answer, 1e-4)


def test_heads_stay_in_float32(served):
    for head in (served.executor.option_head, served.executor.ordinal_head):
        assert {p.dtype for p in head.parameters()} == {torch.float32}


@pytest.mark.parametrize("names", ["c", "s", "cns"])
def test_outputs_leave_the_device_in_one_copy(served, copied, names):
    questions = {name: QUESTIONS[name] for name in names}
    prompts = served.processor.prepare(served.parse(ask(questions))).prompts
    readouts = served.executor.backbone.read(prompts)
    del copied[:]
    outputs = served.executor.read_out(prompts, readouts)
    assert copied == ["tolist"]
    assert [len(output.logprobs) for output in outputs] == [
        len(prompt.reads.logprobs) for prompt in prompts
    ]


def test_prompts_have_the_tokens_and_the_key_of_the_whole_text(served):
    draw, tokenizer = random.Random(0), load_tokenizer(MODEL / "checkpoint")
    odd = [*map(chr, range(128)), *"\x85\u2028\u0301é字ก็🙂", "\n\n", "<|im_end|>", "<|opt", " the"]
    writer = served.processor.writer
    for _ in range(60):
        first, second, text = ("".join(draw.choices(odd, k=draw.randint(1, 9))) for _ in range(3))
        options = [{"key": "a", "text": first}, {"key": "b", "text": second}]
        asked = ask({"q": CHOICE | {"instructions": text, "options": options}}, text=text)
        request = served.parse(asked)
        pictures = make_pictures(request.images, None, served.processor.settings)
        (each,) = served.processor.prepare(request).context.asked
        found = writer.tokens(each, pictures)
        whole = encode(tokenizer, writer.text(each, pictures))
        assert found.token_ids == place_images(whole, writer.image_id, pictures.images)[0]
        for row in found.rows(is_level=False):
            assert row.key.tolist() == make_key(row.token_ids, row.images).tolist()
