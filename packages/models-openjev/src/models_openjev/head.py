"""The trained head: one number for each candidate."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from models_openjev.checkpoint import MERGED_FILE, Source, is_number
from system1_core.errors import CheckpointError
from system1_torch.loading import check_shapes, load_pt


@dataclass(frozen=True, slots=True)
class Head:
    """score = weight . hidden + bias, in float32."""

    weight: Tensor
    bias: float

    def scores(self, hidden: Tensor) -> list[float]:
        """Scores of the rows [N, D]; a row's score does not depend on its neighbours."""
        products = (hidden * self.weight).sum(-1).cpu().numpy()
        scores: list[float] = (products + np.float32(self.bias)).tolist()
        return scores


def load_head(source: Source, hidden_size: int, device: torch.device | str = "cpu") -> Head:
    """The head of either layout. Raises CheckpointError unless it has `hidden_size` finite
    weights and a bias."""
    read = _from_export if source.export is not None else _from_package
    weight, bias = read(source, hidden_size)
    return Head(weight.to(device), bias)


def _from_package(source: Source, hidden_size: int) -> tuple[Tensor, float]:
    file = source.folder / "head.pt"
    state = load_pt(file)
    if not isinstance(state, dict) or not all(isinstance(v, Tensor) for v in state.values()):
        raise CheckpointError(
            f"{file}: is no state dict of tensors, expected weight and bias; fetch the file again"
        )
    expected = {"weight": torch.empty(1, hidden_size), "bias": torch.empty(1)}
    check_shapes(state, expected, file)
    for name, tensor in state.items():
        if tensor.dtype != torch.float32:
            raise CheckpointError(
                f"{file}: tensor {name!r}: found {tensor.dtype}, expected torch.float32; "
                "fetch the file again"
            )
        if not torch.isfinite(tensor).all():
            raise CheckpointError(
                f"{file}: tensor {name!r}: holds a value that is not finite; fetch the file again"
            )
    return state["weight"][0].clone(), float(state["bias"][0])


def _from_export(source: Source, hidden_size: int) -> tuple[Tensor, float]:
    file = source.folder / MERGED_FILE
    values = source.export or {}
    weight, bias = values.get("head_weight"), values.get("head_bias")
    if not isinstance(weight, list) or len(weight) != hidden_size:
        found = f"{len(weight)} values" if isinstance(weight, list) else repr(weight)[:100]
        raise CheckpointError(
            f"{file}: head_weight is {found}, expected {hidden_size} numbers; export again"
        )
    if not is_number(bias) or not all(map(is_number, weight)):
        raise CheckpointError(
            f"{file}: head_weight or head_bias holds a value that is no finite number; export again"
        )
    return torch.tensor(weight, dtype=torch.float32), float(bias)
