"""One head file read strictly: a published `.pt` or converted safetensors."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor

from models_clm.checkpoint import check_pin
from models_clm.head import DualHead, HeadConfig, scale_of
from system1_core.errors import CheckpointError
from system1_torch.loading import check_shapes, load_into, load_pt
from system1_torch.safetensors_file import Safetensors

_PT_PARTS = ("state_head", "action_head")
_CONVERT = "convert the head again"


@dataclass(frozen=True, slots=True)
class Head:
    """Both projections of one file, and what their cosines are multiplied with."""

    network: DualHead
    scale: float


def load_head(file: Path, device: torch.device | str = "cpu") -> Head:
    """The head in a file, float32 on the device.

    Raises CheckpointError unless the file holds exactly the tensors that its configuration asks
    for, all finite; pickled code never runs.
    """
    if file.suffix == ".pt":
        check_pin(file)
        return _load_pt(file, device)
    return _load_safetensors(file, device)


def _load_safetensors(file: Path, device: torch.device | str) -> Head:
    source = Safetensors.open(file)
    metadata = _metadata(file)
    network, scale = _make(file, metadata["cfg"], metadata, device)
    check_shapes(source, network.state_dict(), file)
    for name in source:
        _check_dtype(file, name, source[name].dtype)
    network = network.to_empty(device=device).requires_grad_(False).eval()
    load_into(network, source, check_finite=True)
    return Head(network, scale)


def _load_pt(file: Path, device: torch.device | str) -> Head:
    content = _pt_content(file)
    if not isinstance(content, dict):
        raise CheckpointError(
            f"{file}: holds a {type(content).__name__}, expected a dict with state_head, "
            "action_head, logit_scale and cfg; this is no CLM head: take it out of the folder"
        )
    missing = [name for name in (*_PT_PARTS, "logit_scale", "cfg") if name not in content]
    if missing:
        raise CheckpointError(
            f"{file}: lacks {', '.join(missing)}; this is no CLM head: take it out of the folder"
        )
    found = _pt_tensors(file, content)
    network, scale = _make(file, content["cfg"], content, device)
    targets = network.state_dict()
    check_shapes(found, targets, file)
    for name, tensor in found.items():
        _check_dtype(file, name, tensor.dtype)
        if not bool(torch.isfinite(tensor).all()):
            raise CheckpointError(
                f"{file}: tensor {name!r}: holds values that are not finite; fetch the file again"
            )
    network = network.to_empty(device=device).requires_grad_(False).eval()
    for name, target in network.state_dict().items():
        target.copy_(found[name])
    return Head(network, scale)


def _make(
    file: Path, cfg: Any, fields: Mapping[str, Any], device: torch.device | str
) -> tuple[DualHead, float]:
    """The network on the meta device: sizes are checked against the file before any memory."""
    try:
        cfg = json.loads(cfg) if isinstance(cfg, str) else cfg
        config = HeadConfig.of(cfg, _whole(fields.get("projection_dim")))
        claimed = _whole(fields.get("hidden_size"))
        if claimed is not None and claimed != config.hidden_size:
            raise ValueError(f"hidden_size is {claimed}, but cfg has {config.hidden_size}")
        scale = scale_of(_number(fields["logit_scale"]))
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{file}: {error}; {_CONVERT}, or fetch it again") from None
    with torch.device("meta"):
        return DualHead(config), scale


def _metadata(file: Path) -> Mapping[str, str]:
    with safe_open(file, "pt") as opened:
        metadata = opened.metadata() or {}
    if metadata.get("format") != "clm-heads":
        raise CheckpointError(
            f"{file}: metadata format is {metadata.get('format')!r}, expected 'clm-heads'; this is "
            "no converted CLM head: take it out of the folder"
        )
    missing = [name for name in ("cfg", "logit_scale") if name not in metadata]
    if missing:
        raise CheckpointError(f"{file}: metadata lacks {' and '.join(missing)}; {_CONVERT}")
    return metadata


def _pt_content(file: Path) -> Any:
    try:
        return load_pt(file)
    except CheckpointError:
        raise
    except Exception as error:  # damaged pickles trip the restricted unpickler in many ways
        raise CheckpointError(f"{file}: is no torch file: {error}; fetch it again") from None


def _pt_tensors(file: Path, content: Mapping[str, Any]) -> dict[str, Tensor]:
    found: dict[str, Tensor] = {}
    for part in _PT_PARTS:
        if not isinstance(content[part], dict):
            kind = type(content[part]).__name__
            raise CheckpointError(f"{file}: {part} is a {kind}, expected tensors by name")
        for name, tensor in content[part].items():
            is_plain = isinstance(tensor, Tensor) and tensor.layout == torch.strided
            if not is_plain or tensor.device.type != "cpu":
                kind = type(tensor).__name__
                raise CheckpointError(
                    f"{file}: {part}.{name} is a {kind}, expected a plain tensor; fetch the file "
                    "again"
                )
            found[f"{part}.{name}"] = tensor
    return found


def _check_dtype(file: Path, name: str, found: torch.dtype) -> None:
    if found != torch.float32:
        raise CheckpointError(
            f"{file}: tensor {name!r}: found {found}, expected torch.float32; {_CONVERT}"
        )


def _whole(value: Any) -> int | None:
    """A size as a file states it: absent, a number, or (in safetensors) its text."""
    if value is None or type(value) is int:
        return value
    if isinstance(value, str) and value.isascii() and value.isdigit():
        return int(value)
    raise ValueError(f"{value!r} is no size")


def _number(value: Any) -> float:
    if isinstance(value, Tensor) and value.numel() == 1:
        return float(value)
    if isinstance(value, int | float | str) and not isinstance(value, bool):
        return float(value)
    raise ValueError(f"logit_scale is a {type(value).__name__}, expected a number")
