"""A weights file whose tensors are drawn when they are asked for."""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor

from models_qwen3_5.checkpoint import Parts, checkpoint_targets, make_models
from models_qwen3_5.config import read_config
from system1_torch.safetensors_file import Entry, Safetensors

# Hidden, because an export may hold no file that its manifest does not name.
MARKER = ".random_weights.json"
_SCALE = 0.02
_STEM = "model.safetensors"
# What may stand before a decoder's names.
_PREFIXES = ("model.language_model.", "model.")
# Softplus of the step's bias, spread as in Mamba's initialisation, and the decay per step.
_STEPS, _DECAYS = (0.001, 0.1), (1.0, 16.0)


def random_tensor(
    name: str, shape: tuple[int, ...], seed: int, device: torch.device | str
) -> Tensor:
    """The bfloat16 tensor of this name; equal for equal arguments on one kind of device."""
    for prefix in _PREFIXES:
        if name.startswith(prefix) and not name.startswith("model.visual."):
            name = name.removeprefix(prefix)
            break
    generator = torch.Generator(device).manual_seed(zlib.crc32(name.encode()) ^ seed)
    place = {"device": device, "dtype": torch.bfloat16}
    if name.endswith(("A_log", "dt_bias")):
        low, high = _DECAYS if name.endswith("A_log") else _STEPS
        drawn = torch.rand(shape, generator=generator, device=device)
        value = torch.exp(math.log(low) + drawn * (math.log(high) - math.log(low)))
        if name.endswith("A_log"):
            return value.log().to(torch.bfloat16)
        return (value + torch.log(-torch.expm1(-value))).to(torch.bfloat16)
    tensor = torch.empty(shape, **place).normal_(0, _SCALE, generator=generator)
    return tensor.add_(1) if _is_around_one(name, shape) else tensor


def _is_around_one(name: str, shape: tuple[int, ...]) -> bool:
    """Norms that multiply by their weight; the decoder's others multiply by one more than it."""
    is_norm = name.endswith("linear_attn.norm.weight") or (
        name.startswith("model.visual.") and "norm" in name and name.endswith(".weight")
    )
    return is_norm and len(shape) == 1


class RandomWeights(Safetensors):
    """Every tensor of a config's checkpoint, in bfloat16, on the device it is for."""

    def __init__(self, folder: Path, device: torch.device | str) -> None:
        marker = json.loads((folder / MARKER).read_text("utf-8"))
        config = read_config(folder)
        parts = Parts(vision=marker["vision"], head=marker["head"])
        text, vision = make_models(config, parts, device="meta", dtype=torch.bfloat16)
        targets = checkpoint_targets(text, vision, marker["prefix"])
        file = folder / _STEM
        super().__init__(
            {
                name: Entry(file, torch.bfloat16, tuple(target.shape), 0, 0)
                for name, target in targets.items()
            },
            file,
        )
        self._seed = marker["seed"]
        self._device = device

    @contextmanager
    def mapped(self, name: str) -> Iterator[Tensor]:
        yield random_tensor(name, self[name].shape, self._seed, self._device)


@contextmanager
def random_weights(device: torch.device | str) -> Iterator[None]:
    """Within it, opening the weights of a folder with our marker gives random ones.

    Loaders look the weights up in one place, so nothing of them is repeated here. One thread loads.
    """
    whole = Safetensors.__dict__["open"]

    def open_either(path: Path, stem: str = _STEM) -> Safetensors:
        path = Path(path)
        if stem == _STEM and (path / MARKER).is_file():
            return RandomWeights(path, device)
        return whole.__func__(Safetensors, path, stem)

    Safetensors.open = staticmethod(open_either)  # type: ignore[method-assign,assignment]
    try:
        yield
    finally:
        Safetensors.open = whole  # type: ignore[method-assign]
