"""Full-size Cua-S1 on the meta device: what its adapters adapt, and the memory of each deployment.

    python benchmarks/dryrun_cuas1.py [--write]

Builds the true 4B network without weights, compares its names and shapes with the inventory of
dryrun_qwen3_5.py, places both adapters of the release on it by name, and prints what serving takes.
`--write` keeps the figures in results/dryrun_cuas1.json. Nothing is measured: numbers are counted.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import replace
from pathlib import Path

import torch
from dryrun_qwen3_5 import SIZES, VOCABULARY, check, config_of
from torch import Tensor, nn

from models_cuas1.checkpoint import adapted_weights
from models_cuas1.prompt import MODALITIES, MULTIMODAL, TEXT
from models_cuas1.weights import share_weights
from models_qwen3_5.checkpoint import TEXT_PREFIXES, Parts, checkpoint_targets, make_models

RESULTS = Path(__file__).parent / "results" / "dryrun_cuas1.json"
RANK = 16
# What the release says of each adapter: modules, parameters, bytes of its file in float32.
RELEASED = {
    TEXT: (128, 21_233_664, 84_968_408),
    MULTIMODAL: (178, 25_403_392, 101_665_112),
}
# The header of an adapter's file: names, shapes and offsets of its tensors.
MAX_HEADER_BYTES = 100_000


def adapter_figures(modality: str, targets: dict[str, Tensor]) -> dict[str, int]:
    """Counts of one adapter; exits where they are not the release's."""
    names = adapted_weights(config_of(SIZES["4B"]), modality, TEXT_PREFIXES[0])
    if idle := sorted(names - set(targets)):
        sys.exit(f"{modality}: {len(idle)} adapted weights are not in the network, first {idle[0]}")
    parameters = sum(RANK * sum(targets[name].shape) for name in names)
    modules, expected, file_bytes = RELEASED[modality]
    if (len(names), parameters) != (modules, expected):
        sys.exit(f"{modality}: {len(names)} modules of {parameters} parameters, expected others")
    header = file_bytes - 4 * parameters
    if not 0 < header < MAX_HEADER_BYTES:
        sys.exit(f"{modality}: {header} bytes are left for the header of the adapter's file")
    return {
        "adapted_modules": len(names),
        "adapter_parameters": parameters,
        "adapter_file_bytes": file_bytes,
        "adapted_weight_parameters": sum(targets[name].numel() for name in names),
    }


def weight_bytes(*models: nn.Module | None) -> int:
    """Bytes of all weights in bfloat16, a shared one counted once."""
    weights = {id(weight): weight for model in models if model for weight in model.parameters()}
    return 2 * sum(weight.numel() for weight in weights.values())


def figures() -> dict[str, object]:
    size = SIZES["4B"]
    check("4B", size)
    config = config_of(size)
    parts = Parts()
    text, vision = make_models(config, parts, device="meta", dtype=torch.bfloat16)
    other, _ = make_models(
        config, replace(parts, vision=False), device="meta", dtype=torch.bfloat16
    )
    targets = checkpoint_targets(text, vision)
    assert targets[f"{TEXT_PREFIXES[0]}embed_tokens.weight"].shape[0] == VOCABULARY
    adapters = {modality: adapter_figures(modality, targets) for modality in MODALITIES}
    singles = {"cuas1-text": weight_bytes(text), "cuas1-multimodal": weight_bytes(text, vision)}
    share_weights(other, text)
    return {
        "adapters": adapters,
        "weight_bytes_bf16": {**singles, "cuas1": weight_bytes(text, other, vision)},
        "unshared_bytes_bf16": sum(singles.values()),
        "export_bytes_bf16": {
            TEXT: singles["cuas1-text"],
            MULTIMODAL: singles["cuas1-multimodal"],
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help=f"keep the figures in {RESULTS.name}")
    text = json.dumps(figures(), indent=2)
    print(text)
    if parser.parse_args().write:
        RESULTS.parent.mkdir(exist_ok=True)
        RESULTS.write_text(text + "\n")


if __name__ == "__main__":
    main()
