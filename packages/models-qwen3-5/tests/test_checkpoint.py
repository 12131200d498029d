"""Loading: every accepted layout, adapters, and a clear refusal of everything else."""

import json
import shutil

import pytest
import torch
from checkpoints import (
    TEXT,
    image_text_config,
    random_tensors,
    write_adapter,
    write_checkpoint,
    write_config,
)
from safetensors.torch import save_file

from models_qwen3_5.backbone import Backbone, Planner, Reads, SequencePrompt
from models_qwen3_5.checkpoint import Parts, load_adapter, load_backbone
from system1_core.errors import CheckpointError

READS = Reads(hidden=(4,), logits=(4,), logit_ids=(0, 1, 40))
SEQUENCE = SequencePrompt([1, 7, 3, 40, 2], reads=READS)
UP = "layers.1.mlp.up_proj"


def hidden(backbone):
    return backbone.forward([SEQUENCE])[0].hidden


@pytest.fixture
def folder(tmp_path):
    return write_checkpoint(tmp_path / "base")


def test_every_tensor_lands_in_its_place(folder):
    backbone = load_backbone(folder)
    tensors = random_tensors(folder)
    layer = backbone.text.layers[1]
    prefix = "model.language_model.layers.1."
    stacked = [tensors[f"{prefix}linear_attn.in_proj_{part}.weight"] for part in ("qkv", "z")]
    assert torch.equal(
        layer.mixer.in_proj.weight[: sum(len(part) for part in stacked)], torch.cat(stacked)
    )
    assert torch.equal(layer.mlp.gate_up_proj.weight[40:], tensors[f"{prefix}mlp.up_proj.weight"])
    full = backbone.text.layers[3].mixer
    keys = tensors["model.language_model.layers.3.self_attn.k_proj.weight"]
    assert torch.equal(full.qkv_proj.weight[384:448], keys)
    assert torch.equal(backbone.text.lm_head, tensors["lm_head.weight"])


@pytest.mark.parametrize("prefix", ["model.", ""])
def test_text_exports_under_other_prefixes_give_the_same(folder, tmp_path, prefix):
    export = write_config(tmp_path / "export", {**TEXT, "tie_word_embeddings": False})
    renamed = {
        name.replace("model.language_model.", prefix): tensor
        for name, tensor in random_tensors(folder).items()
        if not name.startswith("model.visual.")
    }
    save_file(renamed, export / "model.safetensors")
    assert torch.equal(hidden(load_backbone(export)), hidden(load_backbone(folder)))


def test_a_tied_head_is_the_embedding(tmp_path):
    backbone = load_backbone(
        write_checkpoint(tmp_path, image_text_config(tie_word_embeddings=True))
    )
    assert backbone.text.head is backbone.text.embed_tokens


def test_draft_layers_are_ignored_and_so_is_an_unwanted_tower(folder):
    tensors = random_tensors(folder) | {"mtp.fc.weight": torch.zeros(2, 2)}
    save_file(tensors, folder / "model.safetensors")
    backbone = load_backbone(folder, Parts(vision=False, head=False))
    assert backbone.vision is None
    assert backbone.text.head is None


def test_bfloat16_files_load_into_float32(folder):
    half = random_tensors(folder, dtype=torch.bfloat16)
    save_file(half, folder / "model.safetensors")
    backbone = load_backbone(folder)
    expected = half["model.language_model.embed_tokens.weight"].float()
    assert torch.equal(backbone.text.embed_tokens, expected)


def test_a_shortened_vocabulary_is_shorter_in_the_softmax_too(folder):
    whole = load_backbone(folder)
    row = torch.full((24,), 0.5)
    short = load_backbone(folder, Parts(vocabulary=45, rows={44: row}))
    assert short.text.embed_tokens.shape == (45, 24)
    assert short.text.head.shape == (45, 24)
    assert torch.equal(short.text.embed_tokens[44], row)
    assert torch.equal(hidden(short), hidden(whole))
    prompt = SequencePrompt(
        [1, 2], reads=Reads(logprobs=((1, 7),), logits=(1,), logit_ids=tuple(range(45)))
    )
    (readout,) = short.forward([prompt])
    expected = readout.logits[0].log_softmax(-1)[7]
    assert abs(readout.logprobs[0] - expected) < 1e-5


def test_a_vocabulary_larger_than_the_base_is_refused(folder):
    with pytest.raises(CheckpointError, match="a vocabulary of 51 .* has 50 rows"):
        load_backbone(folder, Parts(vocabulary=51))


@pytest.mark.parametrize(
    "spelling", ["model.language_model.layers", "model.layers", "layers"], ids=["vl", "lm", "bare"]
)
def test_an_adapter_is_merged_whatever_class_it_was_made_on(folder, tmp_path, spelling):
    module = UP.replace("layers", spelling, 1)
    adapter = write_adapter(tmp_path / "adapter", {module: (40, 24)})
    plain, merged = (
        load_backbone(folder),
        load_backbone(folder, Parts(adapter=load_adapter(adapter))),
    )
    file = load_adapter(adapter)
    weight = plain.text.layers[1].mlp.gate_up_proj.weight[40:]
    expected = file.merge(f"model.language_model.{UP}.weight", weight)
    assert not torch.equal(expected, weight)
    assert torch.equal(merged.text.layers[1].mlp.gate_up_proj.weight[40:], expected)


def test_a_rounded_delta_is_another_merge(folder, tmp_path):
    adapter = load_adapter(write_adapter(tmp_path / "adapter", {UP: (40, 24)}))
    once, twice = (
        load_backbone(folder, Parts(adapter=adapter, delta_dtype=dtype), dtype=torch.bfloat16)
        for dtype in (torch.float32, torch.bfloat16)
    )
    assert not torch.equal(
        once.text.layers[1].mlp.gate_up_proj.weight, twice.text.layers[1].mlp.gate_up_proj.weight
    )


@pytest.mark.parametrize(
    ("module", "shape", "message"),
    [
        ("layers.9.mlp.up_proj", (40, 24), "are not in"),
        ("model.visual.blocks.7.mlp.linear_fc1", (20, 16), "are not in"),
        (UP, (41, 24), "adapts a weight of shape"),
    ],
    ids=["layer", "block", "shape"],
)
def test_an_adapter_of_another_model_is_refused(folder, tmp_path, module, shape, message):
    adapter = load_adapter(write_adapter(tmp_path / "adapter", {module: shape}))
    with pytest.raises(CheckpointError, match=message):
        load_backbone(folder, Parts(adapter=adapter))


def test_an_adapter_of_the_tower_needs_the_tower(folder, tmp_path):
    module = "model.visual.blocks.0.mlp.linear_fc1"
    adapter = load_adapter(write_adapter(tmp_path / "adapter", {module: (20, 16)}))
    plain, merged = load_backbone(folder), load_backbone(folder, Parts(adapter=adapter))
    weights = [b.vision.blocks[0].mlp["linear_fc1"].weight for b in (plain, merged)]
    assert not torch.equal(*weights)
    with pytest.raises(CheckpointError, match="adapts 1 weights that are not loaded"):
        load_backbone(folder, Parts(adapter=adapter, vision=False))


def test_odd_sizes_run_and_share(folder):
    backbone = load_backbone(folder)
    sharing = Backbone(backbone.config, backbone.text, planner=Planner(min_saved=1))
    stem = list(range(1, 40))
    prompts = [SequencePrompt([*stem, token], reads=Reads(hidden=(39,))) for token in range(3)]
    for prompt, shared in zip(prompts, sharing.forward(prompts), strict=True):
        (alone,) = backbone.forward([prompt])
        assert (shared.hidden - alone.hidden).abs().max() < 1e-4


def test_a_linear_last_layer_reads_the_same_rows(tmp_path):
    config = image_text_config(num_hidden_layers=2)
    backbone = load_backbone(write_checkpoint(tmp_path, config))
    everything = SequencePrompt([1, 7, 3, 40, 2], reads=Reads(hidden=tuple(range(5))))
    whole = backbone.forward([everything])[0].hidden
    assert (hidden(backbone)[0] - whole[4]).abs().max() < 1e-5


def hostile(folder, change):
    tensors = random_tensors(folder)
    change(tensors)
    save_file(tensors, folder / "model.safetensors")


GATE = "model.language_model.layers.0.mlp.gate_proj.weight"
HOSTILE = {
    "missing tensor": (lambda t: t.pop(GATE), "missing .*gate_proj"),
    "missing vision tensor": (
        lambda t: t.pop("model.visual.pos_embed.weight"),
        "missing .*pos_embed",
    ),
    "missing embedding": (
        lambda t: t.pop("model.language_model.embed_tokens.weight"),
        "found no embed_tokens",
    ),
    "extra tensor": (lambda t: t.update({"model.extra": torch.zeros(1)}), "'model.extra'"),
    "extra layer": (
        lambda t: t.update({GATE.replace("0", "9"): torch.zeros(40, 24)}),
        "does not know|do not know|config does not",
    ),
    "another shape": (
        lambda t: t.update({GATE: torch.zeros(40, 25)}),
        r"found shape \[40, 25\], expected \[40, 24\]",
    ),
    "integers": (
        lambda t: t.update({GATE: torch.zeros(40, 24, dtype=torch.int64)}),
        "found torch.int64, expected",
    ),
}


@pytest.mark.parametrize(("change", "message"), HOSTILE.values(), ids=HOSTILE.keys())
def test_weights_that_are_not_the_configs_are_refused(folder, change, message):
    hostile(folder, change)
    with pytest.raises(CheckpointError, match=message) as raised:
        load_backbone(folder)
    assert "model.safetensors" in str(raised.value)


def test_a_truncated_shard_is_refused(base, tmp_path):
    copy = shutil.copytree(base, tmp_path / "base")
    shard = next(copy.glob("model*-00002-of-00002.safetensors"))
    shard.write_bytes(shard.read_bytes()[:-100])
    with pytest.raises(CheckpointError, match="00002-of-00002.*fetch the file again"):
        load_backbone(copy)


@pytest.mark.parametrize("shard", ["../model.safetensors", "/etc/passwd", "a/b", ""])
def test_a_shard_outside_the_folder_is_refused(folder, shard):
    index = {"weight_map": {GATE: shard}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(CheckpointError, match="not the name of a file in this folder"):
        load_backbone(folder)
