"""From a checkpoint folder to a model, one tensor at a time."""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path

import torch
from torch import Tensor

from models_laya.checkpoint import missing_parts, tensor_shapes
from models_laya.config import LayaConfig
from models_laya.model import LayaModel
from models_laya.ops import LayaOps
from system1_core.errors import CheckpointError
from system1_torch.loading import check_shapes
from system1_torch.safetensors_file import Safetensors

_FLOATS = (torch.float16, torch.bfloat16, torch.float32)
# Read by nothing: inference takes its temperatures from the config.
_UNUSED = {"temperature"}


def load_model(
    folder: Path, config: LayaConfig, ops: LayaOps, device: torch.device, dtype: torch.dtype
) -> LayaModel:
    """The model on `device`, matrix weights in `dtype`.

    Each tensor goes from the file's pages to its place, so that nothing exists twice but one
    tensor. Raises CheckpointError for a tensor that is missing, unexpected, of another shape,
    no float, or not finite.
    """
    source = Safetensors.open(folder / "model.safetensors")
    _check(source, config)
    left = set(source) - _UNUSED

    def take(name: str, wanted: torch.dtype | None) -> Tensor:
        left.remove(name)
        return _take(source, name, wanted, device)

    with torch.inference_mode():
        model = LayaModel(config, take, ops, dtype)
    assert not left, left
    _return_freed_memory()
    return model


def _return_freed_memory() -> None:
    """Hand the scratch of loading back to the system.

    glibc keeps freed blocks of up to 32 MB: 0.2 GB after the full English checkpoint in float32.
    """
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # musl has none
        if trim is not None:
            trim(0)


def _check(source: Safetensors, config: LayaConfig) -> None:
    if missing := missing_parts(source):
        raise CheckpointError(
            f"{source.source}: no tensor begins with {', '.join(missing)}; "
            "this is no whole LAYA checkpoint, fetch the file again"
        )
    shapes = tensor_shapes(config)
    check_shapes(
        source,
        {name: torch.empty(shape, device="meta") for name, shape in shapes.items()},
        source.source,
    )
    for name, entry in source.items():
        if entry.dtype not in _FLOATS:
            raise CheckpointError(
                f"{source.source}: tensor {name!r}: found {entry.dtype}, expected one of "
                f"{', '.join(map(str, _FLOATS))}; convert the checkpoint"
            )


def _take(
    source: Safetensors, name: str, wanted: torch.dtype | None, device: torch.device
) -> Tensor:
    with source.mapped(name) as stored:
        tensor = stored.to(device, wanted or stored.dtype, copy=True)
        del stored
    low, high = torch.aminmax(tensor)
    if not torch.isfinite(low) or not torch.isfinite(high):
        raise CheckpointError(
            f"{source.source}: tensor {name!r}: holds values that are not finite in "
            f"{tensor.dtype}; fetch the file again, or serve it in float32"
        )
    return tensor
