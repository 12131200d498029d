"""Every recorded case: prompt, tokens, positions, pixels and answer."""

import hashlib

import numpy as np
import pytest
from conftest import (
    CASES,
    FIXTURES,
    IMAGE_CASES,
    TEXT_CASES,
    assert_close,
    body_of,
    fixture,
    named,
)

from models_cuas1.prompt import goal_of, image_text, labels_of, text_parts
from models_qwen3_5.backbone import make_positions
from models_qwen3_5.images import decode_image, pixel_values
from system1_core.request import Question, json_text

LOGITS, PROBABILITIES = 2e-3, 5e-4
SHOWN = [(case, entry) for case in CASES for entry in case["questions"]]
PUBLISHED = fixture("real_prompts.json")


def _shown(pair):
    return f"{pair[0]['name']}-{pair[1]['question']}"


@pytest.mark.parametrize("pair", SHOWN, ids=_shown)
def test_the_prompt_is_the_originals(pair):
    case, entry = pair
    question = Question(id="x", **case["request"]["questions"][entry["question"]])
    goal, labels = goal_of(question), labels_of(question)
    if case in IMAGE_CASES:
        assert image_text(goal, labels) == entry["prompt"]
    else:
        state = json_text(case["request"]["state"])
        assert "".join(text_parts(goal, state, labels)) == entry["prompt"]


@pytest.mark.parametrize("case", PUBLISHED, ids=named)
def test_the_published_inputs_give_the_published_prompts(case):
    question = Question(id="x", type="choice", **case["question"])
    parts = text_parts(goal_of(question), json_text(case["state"]), labels_of(question))
    assert "".join(parts) == case["prompt"]


@pytest.mark.parametrize("case", CASES, ids=named)
def test_tokens_and_the_place_that_is_read_are_exact(served, case):
    prompts = served.prepare(body_of(case)).prompts
    for prompt, entry in zip(prompts, case["questions"], strict=True):
        assert list(prompt.token_ids) == entry["input_ids"]
        assert prompt.reads.logits == (len(entry["input_ids"]) - 1,)
        assert prompt.reads.logit_ids == tuple(range(32, 32 + len(entry["probabilities"])))


@pytest.mark.parametrize("case", TEXT_CASES, ids=named)
def test_positions_of_text_count_up_even_where_it_spells_an_image(served, case):
    for prompt in served.prepare(body_of(case)).prompts:
        expected = np.arange(prompt.num_tokens)
        assert (make_positions(prompt.num_tokens, prompt.images) == expected).all()


@pytest.mark.parametrize("case", IMAGE_CASES, ids=named)
def test_positions_grid_and_pixels_of_a_picture_are_exact(served, case):
    prompts = served.prepare(body_of(case)).prompts
    for prompt, entry in zip(prompts, case["questions"], strict=True):
        (span,) = prompt.images
        assert (span.start, span.image.num_tokens) == (entry["image_start"], entry["image_tokens"])
        assert [1, *span.image.grid] == entry["image_grid_thw"]
        found = make_positions(prompt.num_tokens, prompt.images)
        assert (found == np.array(entry["position_ids"])).all()
        pixels = pixel_values(span.image.patches).numpy()
        assert hashlib.sha256(pixels.tobytes()).hexdigest() == entry["pixel_values_sha256"]


@pytest.mark.parametrize("case", IMAGE_CASES, ids=named)
def test_colours_are_those_of_the_original(case):
    file = case["request"]["state"]["image"]["$file"]
    picture = decode_image((FIXTURES / file).read_bytes())
    assert hashlib.sha256(picture.tobytes()).hexdigest() == case["questions"][0]["rgb_sha256"]


@pytest.fixture(scope="module")
def run(served):
    """Runs a case once: the logits of its letters, and the response they become."""
    ran = {}

    def run(case):
        if id(case) not in ran:
            request = served.parse(body_of(case))
            prepared = served.processor.prepare(request)
            logits = served.executor.execute(prepared.prompts)
            result = served.processor.finish(prepared.context, logits)
            ran[id(case)] = logits, served.reference.render(request, result, "cuas1")
        return ran[id(case)]

    return run


@pytest.mark.parametrize("case", CASES, ids=named)
def test_logits_of_the_letters_are_the_originals(run, case):
    found, _ = run(case)
    for logits, entry in zip(found, case["questions"], strict=True):
        assert logits == pytest.approx(entry["letter_logits"], abs=LOGITS)


@pytest.mark.parametrize("case", CASES, ids=named)
def test_the_response_is_the_originals(run, case):
    _, response = run(case)
    assert_close(response, case["response"], PROBABILITIES)
