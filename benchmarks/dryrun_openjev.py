"""Full-size Open-Jev on the meta device: every tensor name and shape, the adapter, the memory.

    python benchmarks/dryrun_openjev.py [--write]

Builds the true decoders of 9B and 27B-v1.1 without weights and compares the names and shapes they
load from a merged export with an inventory written out here, the sizes with those that the family
checks at load, and the modules with those that a package adapts. `--write` keeps the figures in
results/dryrun_openjev.json. Nothing is measured: parameters are counted.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import torch
from dryrun_qwen3_5 import SIZES, VOCABULARY, Inventory, Size, config_of, layer_inventory

from models_openjev.executor import TARGETS
from models_openjev.identity import (
    OPEN_JEV_9B,
    OPEN_JEV_27B,
    Published,
    adapted_modules,
    check_network,
)
from models_qwen3_5.checkpoint import Parts, checkpoint_targets, make_models

RESULTS = Path(__file__).parent / "results" / "dryrun_openjev.json"
# Published model, and the number of modules its adapter has.
MODELS = {"9B": (OPEN_JEV_9B, 80), "27B": (OPEN_JEV_27B, 160)}
RANK = 8


def inventory(size: Size) -> Inventory:
    """Names and shapes of a merged export: the decoder alone, without a prefix."""
    yield "embed_tokens.weight", (VOCABULARY, size.hidden)
    yield "norm.weight", (size.hidden,)
    for index in range(size.layers):
        yield from (
            (f"layers.{index}.{name}", shape) for name, shape in layer_inventory(size, index)
        )


def check(name: str, published: Published, modules: int) -> dict[str, int]:
    """The figures of one model; exits where a name, a shape or a count is not as expected."""
    size = SIZES[name]
    config = config_of(size)
    check_network(config.text, published, Path(name))
    parts = Parts(vision=False, head=False)
    text, _ = make_models(config, parts, device="meta", dtype=torch.bfloat16)
    targets = checkpoint_targets(text, None, prefix="")
    found = {key: tuple(target.shape) for key, target in targets.items()}
    expected = dict(inventory(size))
    if found != expected:
        odd = sorted(set(found.items()) ^ set(expected.items()))
        sys.exit(f"{name}: names or shapes differ, first {odd[:3]}")
    adapted = {key: shape for key, shape in found.items() if key.split(".")[-2] in TARGETS}
    if not len(adapted) == adapted_modules(config.text) == modules:
        sys.exit(f"{name}: {len(adapted)} adapted modules, expected {modules}")
    parameters = sum(target.numel() for target in targets.values())
    lora = RANK * sum(rows + columns for rows, columns in adapted.values())
    return {
        "tensors": len(targets),
        "parameters": parameters,
        "weights_bytes_bf16": 2 * parameters,
        "weights_bytes_float32": 4 * parameters,
        "adapted_modules": len(adapted),
        "adapter_parameters_rank_8": lora,
        "adapter_bytes_float32": 4 * lora,
        "head_parameters": size.hidden + 1,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help=f"keep the figures in {RESULTS.name}")
    figures = {name: check(name, *model) for name, model in MODELS.items()}
    text = json.dumps(figures, indent=2)
    print(text)
    if parser.parse_args().write:
        RESULTS.parent.mkdir(exist_ok=True)
        RESULTS.write_text(text + "\n")


if __name__ == "__main__":
    main()
