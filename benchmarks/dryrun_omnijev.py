"""Full-size OmniJev-4B on the meta device: its tensors and heads, and the memory it takes.

    python benchmarks/dryrun_omnijev.py [--write]

Builds the true 4B network with the shortened table without weights, compares names and shapes with
the inventory of dryrun_qwen3_5.py, the heads with the release's, and the adapter's ten projections
with its size. `--write` keeps the figures in results/dryrun_omnijev.json. Nothing is measured:
numbers are counted.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import torch
from dryrun_qwen3_5 import SIZES, VOCABULARY, check, config_of, inventory
from torch import nn

from models_omnijev.heads import OptionHead, OrdinalHead
from models_qwen3_5.checkpoint import Parts, checkpoint_targets, make_models

RESULTS = Path(__file__).parent / "results" / "dryrun_omnijev.json"
TOKENS = 248_079
RANK = 32
# What the release's adapter holds, and the size of its file in float32.
ADAPTED, ADAPTER_PARAMETERS, ADAPTER_BYTES = 200, 60_948_480, 243_854_336
PROJECTIONS = (
    "q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj",
    "in_proj_qkv", "in_proj_z", "out_proj",
)  # fmt: skip
MAX_HEADER_BYTES = 100_000
# The release's heads, all float32; a perceptron's layers are called 0 and 2.
HEAD = {
    **{f"{part}.0.weight": (1024, 2560) for part in ("opt", "que")},
    **{f"{part}.2.weight": (1024, 1024) for part in ("opt", "que")},
    **{f"{part}.{layer}.bias": (1024,) for part in ("opt", "que") for layer in (0, 2)},
    "score.weight": (1, 1024),
    "score.bias": (1,),
    "abstain.weight": (1, 1024),
    "abstain.bias": (1,),
    "feat.weight": (1024, 6),
    "feat.bias": (1024,),
    "feat_lin.weight": (1, 6),
    "feat_lin.bias": (1,),
    "log_tau": (3,),
}
ORDINAL = {
    **{f"{part}.0.weight": (512, 2560) for part in ("z", "cut")},
    **{f"{part}.0.bias": (512,) for part in ("z", "cut")},
    **{f"{part}.2.weight": (1, 512) for part in ("z", "cut")},
    **{f"{part}.2.bias": (1,) for part in ("z", "cut")},
}
# Bytes of head.pt and ord.pt, which hold little beside their numbers.
HEAD_BYTES = {"head": 29_418_795, "ord": 10_497_109}


def check_head(name: str, head: nn.Module, expected: dict[str, tuple[int, ...]]) -> int:
    """Bytes of a head in float32; exits where a tensor or the size is not the release's."""
    found = {key: tuple(tensor.shape) for key, tensor in head.state_dict().items()}
    if found != expected:
        sys.exit(f"{name}: tensors differ: {sorted(set(found.items()) ^ set(expected.items()))}")
    size = 4 * sum(tensor.numel() for tensor in head.state_dict().values())
    if not 0 < HEAD_BYTES[name] - size < 20_000:
        sys.exit(f"{name}: {size} bytes of numbers do not fill a file of {HEAD_BYTES[name]}")
    return size


def check_adapter() -> None:
    """The ten projections of every decoder layer make up the released adapter."""
    shapes = dict(inventory(SIZES["4B"]))
    adapted = [name for name in shapes if name.split(".")[-2] in PROJECTIONS]
    parameters = sum(RANK * sum(shapes[name]) for name in adapted)
    header = ADAPTER_BYTES - 4 * parameters
    if (len(adapted), parameters) != (ADAPTED, ADAPTER_PARAMETERS):
        sys.exit(f"adapter: {len(adapted)} weights, {parameters} parameters, expected others")
    if not 0 < header < MAX_HEADER_BYTES:
        sys.exit(f"adapter: {header} bytes are left for the header of its file")


def figures() -> dict[str, int]:
    """What serving takes, in bytes; exits where anything is not as released."""
    check("4B", SIZES["4B"])
    check_adapter()
    config = config_of(SIZES["4B"])
    text, vision = make_models(
        config, Parts(vocabulary=TOKENS), device="meta", dtype=torch.bfloat16
    )
    assert vision is not None
    found = {name: tuple(t.shape) for name, t in checkpoint_targets(text, vision).items()}
    expected = {
        name: (TOKENS, *shape[1:]) if shape[0] == VOCABULARY else shape
        for name, shape in inventory(SIZES["4B"])
    }
    if found != expected:
        sys.exit(
            f"names or shapes differ: {sorted(set(found.items()) ^ set(expected.items()))[:3]}"
        )
    with torch.device("meta"):
        heads = OptionHead(config.text.hidden_size), OrdinalHead(config.text.hidden_size)
    head_bytes = check_head("head", heads[0], HEAD) + check_head("ord", heads[1], ORDINAL)
    numbers = {id(w): w.numel() for model in (text, vision) for w in model.parameters()}
    return {
        "tensors": len(found),
        "backbone_parameters": sum(numbers.values()),
        "backbone_bytes_bf16": 2 * sum(numbers.values()),
        "head_bytes_fp32": head_bytes,
        "adapter_file_bytes": ADAPTER_BYTES,
        "serving_bytes_bf16": 2 * sum(numbers.values()) + head_bytes,
        "serving_bytes_fp32": 4 * sum(numbers.values()) + head_bytes,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help=f"keep the figures in {RESULTS.name}")
    options = parser.parse_args()
    text = json.dumps(figures(), indent=2)
    print(text)
    if options.write:
        RESULTS.parent.mkdir(exist_ok=True)
        RESULTS.write_text(text + "\n")


if __name__ == "__main__":
    main()
