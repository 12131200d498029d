"""bfloat16 on the CPU: no further from float32 than the contract allows the reference."""

import pytest
import torch

from models_qwen3_5.backbone import ImageSpan, Reads, SequencePrompt, make_positions
from models_qwen3_5.images import decode_image, prepare_image, read_image_settings

# Twice the drift of the reference's own bfloat16 over its fixtures, plus 0.01.
DRIFT = {"text": 2 * 0.027 + 0.01, "multimodal": 2 * 0.019 + 0.01}
FLOAT32 = 5e-4
SURE = 0.05


@pytest.fixture(scope="module", params=["text", "multimodal"])
def asked(request, base, images, text_questions, image_questions, load_adapted):
    """Modality, questions and their prompts."""
    settings = read_image_settings(base)
    questions = text_questions if request.param == "text" else image_questions
    prompts = []
    for question in questions:
        spans = ()
        if request.param == "multimodal":
            picture = decode_image((images / question["image"]).read_bytes())
            spans = (ImageSpan(question["image_start"], prepare_image(picture, settings)),)
        token_ids = question["input_ids"]
        last = len(token_ids) - 1
        reads = Reads(logits=(last,), logit_ids=tuple(question["letter_ids"]))
        prompts.append(SequencePrompt(token_ids, reads=reads, images=spans))
    return request.param, questions, prompts


def probabilities(backbone, prompts):
    return [readout.logits[0].softmax(-1) for readout in backbone.forward(prompts)]


def test_adapted_answers_in_float32_are_the_references(asked, load_adapted):
    modality, questions, prompts = asked
    found = probabilities(load_adapted(modality), prompts)
    for question, each in zip(questions, found, strict=True):
        assert (each - torch.tensor(question["probabilities"])).abs().max() < FLOAT32


def test_adapted_answers_in_bfloat16_stay_within_the_stated_drift(asked, load_adapted):
    modality, questions, prompts = asked
    found = probabilities(load_adapted(modality, torch.bfloat16), prompts)
    for question, each in zip(questions, found, strict=True):
        exact = torch.tensor(question["probabilities"])
        assert (each - exact).abs().max() < DRIFT[modality]
        top = exact.topk(min(2, len(exact))).values
        if len(top) == 2 and top[0] - top[1] >= SURE:
            assert each.argmax() == exact.argmax()


def test_positions_of_every_question_are_exact(asked):
    modality, questions, prompts = asked
    for question, prompt in zip(questions, prompts, strict=True):
        found = torch.from_numpy(make_positions(prompt.num_tokens, prompt.images))
        if modality == "text":
            expected = torch.arange(prompt.num_tokens).expand(3, -1)
        else:
            expected = torch.tensor(question["position_ids"]).view(3, -1)
        assert torch.equal(found, expected)


def test_a_bfloat16_tree_stays_close_to_lone_sequences(base, load_adapted, text_questions):
    backbone = load_adapted("text", torch.bfloat16)
    prompts = [
        SequencePrompt(
            q["input_ids"], reads=Reads(logits=(len(q["input_ids"]) - 1,), logit_ids=(32, 33))
        )
        for q in text_questions[:8]
    ]
    together = probabilities(backbone, prompts)
    for prompt, each in zip(prompts, together, strict=True):
        (alone,) = probabilities(backbone, [prompt])
        assert (each - alone).abs().max() < DRIFT["text"]
