"""Full-size Qwen3.5 models on the meta device: every tensor name and shape, and the memory.

    python benchmarks/dryrun_qwen3_5.py [--write]

Builds the true configurations of 4B, 9B and 27B without weights, compares the names and shapes
they load with an inventory written out here, and prints what the weights take. `--write` keeps
the figures in results/dryrun_qwen3_5.json. Nothing is measured: parameters are counted.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch

from models_qwen3_5.checkpoint import checkpoint_targets
from models_qwen3_5.config import ModelConfig, TextConfig, VisionConfig
from models_qwen3_5.text import TextModel
from models_qwen3_5.vision import VisionTower

RESULTS = Path(__file__).parent / "results" / "dryrun_qwen3_5.json"
Inventory = Iterator[tuple[str, tuple[int, ...]]]


@dataclass(frozen=True)
class Size:
    """What tells the released sizes apart, and the parameter counts known of each."""

    hidden: int
    mlp: int
    layers: int
    heads: int
    value_heads: int
    vision: tuple[int, int, int]  # hidden, MLP, depth
    tied: bool
    decoder_parameters: int
    vision_parameters: int


SIZES = {
    "4B": Size(2560, 9216, 32, 16, 32, (1024, 4096, 24), True, 3_570_052_096, 333_514_240),
    "9B": Size(4096, 12288, 32, 16, 32, (1152, 4304, 27), False, 6_919_565_824, 456_010_480),
    "27B": Size(5120, 17408, 64, 24, 48, (1152, 4304, 27), False, 24_353_201_664, 460_730_096),
}
VOCABULARY = 248_320


def config_of(size: Size) -> ModelConfig:
    text = TextConfig(
        hidden_size=size.hidden,
        intermediate_size=size.mlp,
        num_hidden_layers=size.layers,
        layer_types=tuple(
            "linear_attention" if (i + 1) % 4 else "full_attention" for i in range(size.layers)
        ),
        num_attention_heads=size.heads,
        num_key_value_heads=4,
        head_dim=256,
        linear_num_key_heads=16,
        linear_num_value_heads=size.value_heads,
        linear_key_head_dim=128,
        linear_value_head_dim=128,
        linear_conv_kernel_dim=4,
        rms_norm_eps=1e-6,
        vocab_size=VOCABULARY,
        rope_theta=1e7,
        rotary_dim=64,
        mrope_section=(11, 11, 10),
        max_position_embeddings=262_144,
        tie_word_embeddings=size.tied,
    )
    hidden, mlp, depth = size.vision
    vision = VisionConfig(
        hidden_size=hidden,
        intermediate_size=mlp,
        depth=depth,
        num_heads=16,
        num_position_embeddings=2304,
        out_hidden_size=size.hidden,
        patch_size=16,
        temporal_patch_size=2,
        spatial_merge_size=2,
    )
    return ModelConfig(text=text, vision=vision, image_token_id=248_056)


def inventory(size: Size) -> Inventory:
    """Names and shapes of a checkpoint without its draft layer, from the published layout."""
    hidden = size.hidden
    yield "model.language_model.embed_tokens.weight", (VOCABULARY, hidden)
    yield "model.language_model.norm.weight", (hidden,)
    if not size.tied:
        yield "lm_head.weight", (VOCABULARY, hidden)
    for index in range(size.layers):
        prefix = f"model.language_model.layers.{index}."
        yield from ((prefix + name, shape) for name, shape in layer_inventory(size, index))
    yield from (("model.visual." + name, shape) for name, shape in vision_inventory(size))


def layer_inventory(size: Size, index: int) -> Inventory:
    hidden, values = size.hidden, 128 * size.value_heads
    channels = 2 * 16 * 128 + values
    for norm in ("input_layernorm", "post_attention_layernorm"):
        yield f"{norm}.weight", (hidden,)
    yield "mlp.gate_proj.weight", (size.mlp, hidden)
    yield "mlp.up_proj.weight", (size.mlp, hidden)
    yield "mlp.down_proj.weight", (hidden, size.mlp)
    if (index + 1) % 4 == 0:
        yield "self_attn.q_proj.weight", (size.heads * 512, hidden)
        yield "self_attn.k_proj.weight", (1024, hidden)
        yield "self_attn.v_proj.weight", (1024, hidden)
        yield "self_attn.o_proj.weight", (hidden, size.heads * 256)
        yield "self_attn.q_norm.weight", (256,)
        yield "self_attn.k_norm.weight", (256,)
        return
    yield "linear_attn.in_proj_qkv.weight", (channels, hidden)
    yield "linear_attn.in_proj_z.weight", (values, hidden)
    yield "linear_attn.in_proj_b.weight", (size.value_heads, hidden)
    yield "linear_attn.in_proj_a.weight", (size.value_heads, hidden)
    yield "linear_attn.conv1d.weight", (channels, 1, 4)
    yield "linear_attn.A_log", (size.value_heads,)
    yield "linear_attn.dt_bias", (size.value_heads,)
    yield "linear_attn.norm.weight", (128,)
    yield "linear_attn.out_proj.weight", (hidden, values)


def vision_inventory(size: Size) -> Inventory:
    hidden, mlp, depth = size.vision
    linears = {"attn.qkv": (3 * hidden, hidden), "attn.proj": (hidden, hidden)}
    linears |= {"mlp.linear_fc1": (mlp, hidden), "mlp.linear_fc2": (hidden, mlp)}
    yield "patch_embed.proj.weight", (hidden, 3, 2, 16, 16)
    yield "patch_embed.proj.bias", (hidden,)
    yield "pos_embed.weight", (2304, hidden)
    for block in range(depth):
        for norm in ("norm1", "norm2"):
            yield f"blocks.{block}.{norm}.weight", (hidden,)
            yield f"blocks.{block}.{norm}.bias", (hidden,)
        for name, shape in linears.items():
            yield f"blocks.{block}.{name}.weight", shape
            yield f"blocks.{block}.{name}.bias", shape[:1]
    yield "merger.norm.weight", (hidden,)
    yield "merger.norm.bias", (hidden,)
    for name, rows in (("linear_fc1", 4 * hidden), ("linear_fc2", size.hidden)):
        yield f"merger.{name}.weight", (rows, 4 * hidden)
        yield f"merger.{name}.bias", (rows,)


def check(name: str, size: Size) -> dict[str, int]:
    """The figures of one size; exits where a name, a shape or a count is not as expected."""
    config = config_of(size)
    assert config.vision is not None
    with torch.device("meta"):
        text = TextModel(config.text)
        vision = VisionTower(config.vision)
    targets = checkpoint_targets(text, vision)
    found = {key: tuple(target.shape) for key, target in targets.items()}
    expected = dict(inventory(size))
    if found != expected:
        odd = sorted(set(found.items()) ^ set(expected.items()))
        sys.exit(f"{name}: names or shapes differ, first {odd[:3]}")
    tower = sum(weight.numel() for weight in vision.parameters())
    tables = VOCABULARY * size.hidden * (1 if size.tied else 2)
    decoder = sum(weight.numel() for weight in text.parameters()) - tables
    if (decoder, tower) != (size.decoder_parameters, size.vision_parameters):
        sys.exit(f"{name}: {decoder} decoder and {tower} tower parameters, expected others")
    return {
        "tensors": len(targets),
        "decoder_parameters": decoder,
        "vision_parameters": tower,
        "text_bytes_bf16": 2 * (decoder + tables),
        "text_bytes_bf16_without_head": 2 * (decoder + VOCABULARY * size.hidden),
        "vision_bytes_bf16": 2 * tower,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help=f"keep the figures in {RESULTS.name}")
    figures = {name: check(name, size) for name, size in SIZES.items()}
    text = json.dumps(figures, indent=2)
    print(text)
    if parser.parse_args().write:
        RESULTS.parent.mkdir(exist_ok=True)
        RESULTS.write_text(text + "\n")


if __name__ == "__main__":
    main()
