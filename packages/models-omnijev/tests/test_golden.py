"""Every recorded request, stage by stage: prompt, tokens, positions, pixels, heads, answers."""

import hashlib

import numpy as np
import pytest
import torch
from conftest import assert_close

from models_omnijev.features import lm_features
from models_omnijev.heads import level_probabilities
from models_omnijev.pictures import make_pictures
from models_qwen3_5.backbone import make_positions
from models_qwen3_5.images import pixel_values


def _folded(token_ids, image_id):
    """Token ids with every run of n placeholders written as -n."""
    folded = []
    for token in token_ids:
        if token != image_id:
            folded.append(token)
        elif folded and folded[-1] < 0:
            folded[-1] -= 1
        else:
            folded.append(-1)
    return folded


def _pictures(run):
    request = run.request
    return make_pictures(request.images, request.video, run.served.processor.settings)


@pytest.fixture
def tokens(run):
    writer = run.served.processor.writer
    pictures = _pictures(run)
    return [writer.tokens(asked, pictures) for asked in run.context.asked]


def test_keys_texts_and_prompts_are_exact(run):
    writer = run.served.processor.writer
    pictures = _pictures(run)
    for detail, asked, _ in run.questions():
        assert list(asked.keys) == detail["keys"]
        assert list(asked.texts) == detail["option_text"]
        assert writer.text(asked, pictures) == detail["prompt"]


def test_token_ids_and_markers_are_exact(run, tokens):
    image_id = run.served.processor.writer.image_id
    for detail, each in zip(run.case["detail"].values(), tokens, strict=True):
        assert _folded(each.token_ids, image_id) == detail["token_ids"]
        assert len(each.token_ids) == detail["length"]
        assert list(each.opens) == detail["opens"]
        assert list(each.closes) == detail["closes"]


def test_rows_and_their_reads_are_exact(run, tokens):
    start = run.case["prefix_length"]
    for detail, each in zip(run.case["detail"].values(), tokens, strict=True):
        is_level = detail["type"] == "score"
        rows = each.rows(is_level=is_level)
        for row, recorded in zip(rows, detail["rows"], strict=True):
            assert row.num_tokens - start == recorded["length"]
            assert row.reads.hidden == (start + recorded["zq_index"], start + recorded["u_index"])
            text = recorded["option_text_tokens"]
            assert row.token_ids[each.opens[0] + 1 : -1] == text
            assert row.token_ids[start : each.opens[0]] == detail["row_head_token_ids"]
            if not is_level:
                asked = [token for _, token in row.reads.logprobs]
                assert asked == [*text[:1], *text]


def test_positions_are_exact(run):
    start = run.case["prefix_length"]
    for prompt in run.prepared.prompts:
        found = make_positions(prompt.num_tokens, prompt.images)
        prefix = np.ascontiguousarray(found[:, :start]).astype("<i8")
        expected = run.case["prefix_positions_sha256_i64le"]
        assert hashlib.sha256(prefix.tobytes()).hexdigest() == expected
        rest = np.arange(prompt.num_tokens - start) + run.case["suffix_position_start"]
        assert (found[:, start:] == rest).all()


def test_pixels_are_exact_but_for_jpeg_decoders(run):
    images = _pictures(run).images
    assert [[1, *image.grid] for image in images] == run.case["image_grid_thw"]
    pixels = torch.cat([pixel_values(image.patches) for image in images])
    assert list(pixels.shape) == run.case["pixel_values_shape"]
    head = torch.tensor(run.case["pixel_values_first_row_head"])
    assert (pixels[0, : len(head)] - head).abs().max() <= 2e-2
    assert float(pixels.mean()) == pytest.approx(run.case["pixel_values_mean"], abs=2e-3)
    names = run.case["state"]["images"]
    if len(names) == 1 and names[0].endswith(".png"):
        digest = hashlib.sha256(pixels.numpy().astype("<f4").tobytes()).hexdigest()
        assert digest == run.case["pixel_values_sha256_f32le"]


def test_hidden_rows_are_the_originals(run):
    for detail, _, places in run.questions():
        for place, recorded in zip(places, detail["u"], strict=True):
            zq, u = run.readouts[place].hidden
            assert (zq - torch.tensor(detail["zq"])).abs().max() < 1e-4
            assert (u - torch.tensor(recorded)).abs().max() < 1e-4


def test_lm_features_are_the_originals(run):
    for detail, asked, places in run.questions():
        if asked.type == "score":
            continue
        found = lm_features([run.outputs[place].logprobs for place in places])
        expected = np.array(detail["lm_features"])
        off = np.abs(found - expected)
        assert ((off < 1e-3) | (off < 1e-4 * np.abs(expected))).all()


def test_head_logits_and_mu_are_the_originals(run):
    scorer = run.served.processor.scorer
    for detail, asked, places in run.questions():
        rows = [run.outputs[place] for place in places]
        if asked.type == "score":
            mu = level_probabilities(rows)
        else:
            mu = scorer.mu(asked.type, rows)
            logits = scorer.logits(asked.type, rows)
            expected = np.array(detail["head_logits"])
            if asked.type == "noul":
                logits, expected = logits[:-1], expected[:-1]
            assert (np.abs(logits - expected) < 1e-4 * np.maximum(1, np.abs(expected))).all()
        assert np.abs(mu - np.array(detail["mu"])).max() < 1e-4


def test_answers_and_usage_are_the_originals(run):
    assert_close(run.response["answers"], run.case["answers"])
    usage = {"input_tokens": run.case["input_tokens"], "output_tokens": 0}
    assert run.response["usage"] == usage
