"""LoRA adapters in PEFT's files, merged into the weights they belong to."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from system1_core.errors import CheckpointError
from system1_torch.safetensors_file import Safetensors

_PREFIX = "base_model.model."
_SUFFIX_A = ".lora_A.weight"
_SUFFIX_B = ".lora_B.weight"
# What would change the arithmetic of the merge; each must be absent or falsy.
_REFUSED = (
    "use_dora", "use_qalora", "use_bdlora", "fan_in_fan_out", "lora_bias", "modules_to_save",
    "rank_pattern", "alpha_pattern", "layer_replication", "target_parameters",
    "trainable_token_indices", "alora_invocation_tokens",
)  # fmt: skip


class LoraAdapter:
    """One adapter: `weight + scale * B @ A` for each weight it adapts.

    `modules` maps the name of each adapted weight, as the base checkpoint spells it, to the
    module's name in the adapter; `targets` are the last parts of those names.
    """

    def __init__(self, folder: Path, scale: float, modules: dict[str, str], file: Safetensors):
        self.folder = folder
        self.scale = scale
        self.modules = modules
        self._file = file

    @classmethod
    def load(
        cls, folder: Path, rename: Callable[[str], str] = lambda module: module
    ) -> LoraAdapter:
        """The adapter in `folder`; `rename` turns a module's name into the base's spelling.

        Names reach `rename` without PEFT's prefix, for instance "layers.3.mlp.up_proj".
        Raises CheckpointError for an adapter that is not plain LoRA, lacks half of a pair, or
        whose tensors and `target_modules` disagree.
        """
        config = _read_config(folder / "adapter_config.json")
        file = Safetensors.open(folder, stem="adapter_model.safetensors")
        names = _module_names(file)
        _check_targets(folder, config["target_modules"], names)
        _check_ranks(file, names, config["r"])
        root = math.sqrt(config["r"]) if config.get("use_rslora") else config["r"]
        modules = {f"{rename(name.removeprefix(_PREFIX))}.weight": name for name in names}
        return cls(folder, config["lora_alpha"] / root, modules, file)

    @property
    def targets(self) -> frozenset[str]:
        return frozenset(name.rpartition(".")[2] for name in self.modules.values())

    def check_modules(self, count: int, targets: Iterable[str]) -> None:
        """Raise CheckpointError unless it adapts `count` modules with exactly these last names."""
        expected = frozenset(targets)
        if len(self.modules) != count or self.targets != expected:
            raise CheckpointError(
                f"{self.folder}: adapts {len(self.modules)} modules {sorted(self.targets)}, "
                f"expected {count} modules {sorted(expected)}; name the adapter for this model"
            )

    def check_base(self, base: Safetensors) -> None:
        """Raise CheckpointError unless every module has its weight in `base`, of its shape."""
        absent = sorted(set(self.modules) - set(base))
        if absent:
            raise CheckpointError(
                f"{self.folder}: {len(absent)} of {len(self.modules)} adapted weights are not in "
                f"{base.source}, first {absent[0]!r}; name the base this adapter was trained on"
            )
        for name, module in self.modules.items():
            rows = self._file[module + _SUFFIX_B].shape[0]
            columns = self._file[module + _SUFFIX_A].shape[1]
            if base[name].shape != (rows, columns):
                raise CheckpointError(
                    f"{self.folder}: {module!r} adapts a weight of shape {[rows, columns]}, "
                    f"{base.source} has {list(base[name].shape)}; name the base of this adapter"
                )

    def merge(
        self, name: str, weight: Tensor, *, delta_dtype: torch.dtype = torch.float32
    ) -> Tensor:
        """The merged weight in float32, on the weight's device; as it is where not adapted.

        Fits `load_into(transform=...)`, which casts once. `delta_dtype` bfloat16 rounds the
        delta first, as Open-Jev's exporter does (two roundings).
        """
        module = self.modules.get(name)
        if module is None:
            return weight
        with (
            self._file.mapped(module + _SUFFIX_A) as down,
            self._file.mapped(module + _SUFFIX_B) as up,
        ):
            delta = up.to(weight.device).float() @ down.to(weight.device).float()
        delta.mul_(self.scale)
        if delta_dtype != torch.float32:
            delta = delta.to(delta_dtype).float()
        return delta.add_(weight)


def _read_config(file: Path) -> dict[str, Any]:
    try:
        config = json.loads(file.read_text(encoding="utf-8"))
        is_sound = (
            type(config["r"]) is int
            and config["r"] > 0
            and isinstance(config["lora_alpha"], int | float)
            and isinstance(config["target_modules"], list | str)
        )
    except FileNotFoundError as error:
        raise CheckpointError(f"{file}: missing; name the folder of a PEFT adapter") from error
    except (ValueError, KeyError, TypeError):
        is_sound = False
    if not is_sound:
        raise CheckpointError(
            f"{file}: expected r, lora_alpha and target_modules of a PEFT adapter; "
            "fetch the file again"
        )
    refused = [f"{key}={config[key]!r}" for key in _REFUSED if config.get(key)]
    if config.get("peft_type") != "LORA":
        refused.append(f"peft_type={config.get('peft_type')!r}")
    if config.get("bias", "none") != "none":
        refused.append(f"bias={config['bias']!r}")
    if refused:
        raise CheckpointError(
            f"{file}: {', '.join(refused)} is not plain LoRA; merge it with PEFT and serve that"
        )
    return config


def _module_names(file: Safetensors) -> list[str]:
    """Modules with both halves, in file order; anything else in the file is an error."""
    names = [name.removesuffix(_SUFFIX_A) for name in file if name.endswith(_SUFFIX_A)]
    pairs = {name + suffix for name in names for suffix in (_SUFFIX_A, _SUFFIX_B)}
    odd = sorted(pairs ^ set(file))
    if odd or not names:
        raise CheckpointError(
            f"{file.source}: expected pairs of lora_A.weight and lora_B.weight, "
            f"found {len(names)} modules and {len(odd)} odd tensors {odd[:3]}; "
            "fetch the file again"
        )
    return names


def _check_targets(folder: Path, targets: list[str] | str, names: list[str]) -> None:
    """The config's targets and the tensors must cover each other."""

    def is_target(name: str, target: str) -> bool:
        return name == target or name.endswith("." + target)

    if isinstance(targets, str):
        stray = [name for name in names if not re.fullmatch(targets, name.removeprefix(_PREFIX))]
        idle: list[str] = []
    else:
        stray = [n for n in names if not any(is_target(n, t) for t in targets)]
        idle = [t for t in targets if not any(is_target(n, t) for n in names)]
    if stray or idle:
        raise CheckpointError(
            f"{folder}: adapter_config.json and the tensors disagree: modules not in "
            f"target_modules {stray[:3]}, targets without tensors {idle[:3]}; "
            "fetch both files again"
        )


def _check_ranks(file: Safetensors, names: list[str], rank: int) -> None:
    for name in names:
        down, up = file[name + _SUFFIX_A].shape, file[name + _SUFFIX_B].shape
        if len(down) != 2 or len(up) != 2 or down[0] != rank or up[1] != rank:
            raise CheckpointError(
                f"{file.source}: {name!r}: found lora_A {list(down)} and lora_B {list(up)}, "
                f"expected rank {rank}; fetch the adapter again"
            )
