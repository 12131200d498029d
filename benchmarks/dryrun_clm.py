"""Full-size CLM on the meta device: every tensor name and shape, and the memory it needs.

    python benchmarks/dryrun_clm.py [--write]

Builds the heads of CLM-v0.1-8B and the Qwen3-8B encoder without weights and compares names and
shapes with an inventory written out here. `--write` keeps the figures in results/dryrun_clm.json.
Nothing is measured: parameters are counted.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import torch
from torch import Tensor

from models_clm.head import DualHead, HeadConfig
from models_clm.qwen3 import Qwen3, Qwen3Ops
from models_clm.qwen3_config import Qwen3Config

RESULTS = Path(__file__).parent / "results" / "dryrun_clm.json"
HEAD = {"width": 1536, "depth": 3, "activation": "gelu", "layernorm": True, "residual": False}
ENCODER = Qwen3Config(
    hidden_size=4096,
    intermediate_size=12_288,
    num_hidden_layers=36,
    num_attention_heads=32,
    num_key_value_heads=8,
    head_dim=128,
    vocab_size=151_936,
    max_position_embeddings=40_960,
    rms_norm_eps=1e-6,
    rope_theta=1e6,
)

Inventory = Iterator[tuple[str, tuple[int, ...]]]


def head_inventory(width: int = 1536, hidden: int = 4096, projection: int = 512) -> Inventory:
    """The 16 tensors of contract section 2, with one hidden block and its norm."""
    for head in ("state_head", "action_head"):
        yield f"{head}.inp.weight", (width, hidden)
        yield f"{head}.inp.bias", (width,)
        yield f"{head}.hidden.0.weight", (width, width)
        yield f"{head}.hidden.0.bias", (width,)
        yield f"{head}.norms.0.weight", (width,)
        yield f"{head}.norms.0.bias", (width,)
        yield f"{head}.out.weight", (projection, width)
        yield f"{head}.out.bias", (projection,)


def encoder_inventory() -> Inventory:
    """Qwen3-8B without its vocabulary head."""
    yield "embed_tokens.weight", (151_936, 4096)
    yield "norm.weight", (4096,)
    for index in range(36):
        layer = f"layers.{index}"
        yield f"{layer}.input_layernorm.weight", (4096,)
        yield f"{layer}.post_attention_layernorm.weight", (4096,)
        yield f"{layer}.self_attn.q_proj.weight", (4096, 4096)
        yield f"{layer}.self_attn.k_proj.weight", (1024, 4096)
        yield f"{layer}.self_attn.v_proj.weight", (1024, 4096)
        yield f"{layer}.self_attn.o_proj.weight", (4096, 4096)
        yield f"{layer}.self_attn.q_norm.weight", (128,)
        yield f"{layer}.self_attn.k_norm.weight", (128,)
        yield f"{layer}.mlp.gate_proj.weight", (12_288, 4096)
        yield f"{layer}.mlp.up_proj.weight", (12_288, 4096)
        yield f"{layer}.mlp.down_proj.weight", (4096, 12_288)


def check(name: str, tensors: Mapping[str, Tensor], inventory: Inventory) -> dict[str, int]:
    """The figures of one network; exits where a name or a shape is not as expected."""
    found = {key: tuple(tensor.shape) for key, tensor in tensors.items()}
    odd = sorted(set(found.items()) ^ set(dict(inventory).items()))
    if odd:
        sys.exit(f"{name}: names or shapes differ, first {odd[:3]}")
    parameters = sum(tensor.numel() for tensor in tensors.values())
    return {
        "tensors": len(found),
        "parameters": parameters,
        "bytes_float32": 4 * parameters,
        "bytes_bf16": 2 * parameters,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help=f"keep the figures in {RESULTS.name}")
    arguments = parser.parse_args()
    with torch.device("meta"):
        heads = DualHead(HeadConfig.of(HEAD)).state_dict()
        encoder = dict(Qwen3(ENCODER, Qwen3Ops()).places())
    figures = {
        "heads of CLM-v0.1-8B": check("heads", heads, head_inventory()),
        "Qwen3-8B encoder": check("encoder", encoder, encoder_inventory()),
    }
    text = json.dumps(figures, indent=2)
    print(text)
    if arguments.write:
        RESULTS.write_text(text + "\n")


if __name__ == "__main__":
    main()
