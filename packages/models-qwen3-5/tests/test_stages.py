"""Every stage of the network against the reference's values, float32 on the CPU."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from models_qwen3_5.backbone import ImageSpan, Reads, SequencePrompt, make_positions
from models_qwen3_5.images import decode_image, pixel_values, prepare_image, read_image_settings
from models_qwen3_5.ops import Ops
from models_qwen3_5.rope import RotaryTables
from models_qwen3_5.text import Step
from models_qwen3_5.vision_tables import position_taps
from system1_torch.ops.gated_rms_norm import gated_rms_norm
from system1_torch.ops.gated_tree_attention import gated_tree_attention
from system1_torch.ops.rms_norm import add_rms_norm
from system1_torch.ops.tree_delta_rule import tree_delta_rule
from system1_torch.packed_tree import make_packed_tree

STAGES = Path(__file__).parent / "fixtures" / "stages"
TOLERANCE = 1e-4


@pytest.fixture(scope="module", params=["text", "image"])
def stage(request):
    return load_file(STAGES / f"{request.param}_stage.safetensors")


@pytest.fixture(scope="module")
def image_stage():
    return load_file(STAGES / "image_stage.safetensors")


@pytest.fixture(scope="module")
def stage_image(base):
    picture = decode_image((STAGES / "stage_image.png").read_bytes())
    return prepare_image(picture, read_image_settings(base))


class Taps:
    """Operations that keep what passes through them."""

    def __init__(self):
        self.sums, self.delta, self.gated, self.attention = [], [], [], []
        self.ops = Ops(
            add_rms_norm=self._keep(add_rms_norm, self.sums, 1),
            tree_delta_rule=self._keep(tree_delta_rule, self.delta),
            gated_rms_norm=self._keep(gated_rms_norm, self.gated),
            gated_tree_attention=self._keep(gated_tree_attention, self.attention),
        )

    @staticmethod
    def _keep(op, kept, part=None):
        def tapped(*args):
            out = op(*args)
            kept.append(out if part is None else out[part])
            return out

        return tapped


def distance(found, expected):
    return (found - expected).abs().max().item()


def run_text(backbone, stage, taps):
    """The decoder over the stage's own embeddings, so that the tower's rounding stays out."""
    num_tokens = stage["input_ids"].shape[0]
    tree = make_packed_tree([num_tokens], [-1])
    cos, sin = RotaryTables(backbone.config.text).tables(stage["position_ids"], torch.float32)
    return backbone.text(stage["inputs_embeds"], Step(taps.ops, tree, cos, sin))


def test_rotary_tables_are_bit_equal(backbone, stage):
    cos, sin = RotaryTables(backbone.config.text).tables(stage["position_ids"], torch.float32)
    assert torch.equal(cos, stage["rotary_cos"])
    assert torch.equal(sin, stage["rotary_sin"])


def test_every_layer_output_is_within_1e_4(backbone, stage):
    taps = Taps()
    final = run_text(backbone, stage, taps)
    for layer in range(8):
        assert distance(taps.sums[2 * layer + 1], stage[f"layers.{layer}.output"]) < TOLERANCE
    assert distance(final, stage["final_norm"]) < TOLERANCE


def test_both_kinds_of_mixer_are_within_1e_4_inside(backbone, stage):
    taps = Taps()
    run_text(backbone, stage, taps)
    rows = stage["rows"]
    for layer in (0, 3):
        expected = stage[f"layers.{layer}.after_mixer"]
        assert distance(taps.sums[2 * layer], expected) < TOLERANCE
    delta = stage["layers.0.linear_attn.core_attn_out"]
    assert distance(taps.delta[0][rows], delta) < TOLERANCE
    assert distance(taps.gated[0][rows], stage["layers.0.linear_attn.gated_norm"]) < TOLERANCE
    attention = stage["layers.3.self_attn.gated_attention"]
    assert distance(taps.attention[0][rows], attention) < TOLERANCE


def test_the_whole_text_pass_gives_the_last_logits(backbone):
    stage = load_file(STAGES / "text_stage.safetensors")
    token_ids = stage["input_ids"].tolist()
    last = len(token_ids) - 1
    reads = Reads(hidden=(last,), logits=(last,), logit_ids=tuple(range(512)))
    (readout,) = backbone.forward([SequencePrompt(token_ids, reads=reads)])
    assert distance(readout.hidden[0], stage["final_norm"][-1]) < TOLERANCE
    assert distance(readout.logits[0], stage["last_logits"]) < TOLERANCE


def test_the_whole_image_pass_gives_the_last_logits(backbone, image_stage, stage_image):
    token_ids = image_stage["input_ids"].tolist()
    span = ImageSpan(token_ids.index(backbone.config.image_token_id), stage_image)
    last = len(token_ids) - 1
    reads = Reads(logits=(last,), logit_ids=tuple(range(512)))
    (readout,) = backbone.forward([SequencePrompt(token_ids, reads=reads, images=(span,))])
    assert distance(readout.logits[0], image_stage["last_logits"]) < TOLERANCE


def test_image_positions_are_exact(image_stage, stage_image, backbone):
    token_ids = image_stage["input_ids"].tolist()
    span = ImageSpan(token_ids.index(backbone.config.image_token_id), stage_image)
    positions = make_positions(len(token_ids), [span])
    assert torch.equal(torch.from_numpy(positions), image_stage["position_ids"])


def test_pixels_and_position_taps_are_exact(image_stage, stage_image):
    rows = image_stage["vision_rows"]
    pixels = pixel_values(stage_image.patches)[rows]
    assert torch.equal(pixels, image_stage["pixel_values_rows"])
    indices, weights = position_taps(stage_image.grid, 16, 2)
    assert torch.equal(indices[rows], image_stage["vision.interp_indices"])
    assert torch.equal(weights[rows], image_stage["vision.interp_weights"])


def test_vision_rotary_is_exact(backbone, image_stage, stage_image):
    tables = backbone.vision.tables([stage_image.grid])
    cos, sin = (part.repeat(1, 2) for part in (tables.cos, tables.sin))
    rows = image_stage["vision_rows"]
    assert torch.equal(cos[rows], image_stage["vision.rotary_cos"])
    assert torch.equal(sin[rows], image_stage["vision.rotary_sin"])


def test_every_stage_of_the_tower_is_within_1e_4(backbone, image_stage, stage_image):
    rows, seen = image_stage["vision_rows"], []
    hooks = [
        block.register_forward_hook(lambda _, inputs, out: seen.append((inputs[1], out[1])))
        for block in backbone.vision.blocks
    ]
    (features,) = backbone.image_features([stage_image])
    for hook in hooks:
        hook.remove()
    assert distance(seen[0][0][rows], image_stage["vision.embeddings"]) < TOLERANCE
    for block in range(2):
        assert distance(seen[block][1][rows], image_stage[f"vision.blocks.{block}"]) < TOLERANCE
    assert distance(features, image_stage["vision.merger"]) < TOLERANCE
