"""Weights from files straight to their place on the device, strictly."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from system1_core.errors import CheckpointError
from system1_torch.safetensors_file import Safetensors

ModuleT = TypeVar("ModuleT", bound=nn.Module)
Transform = Callable[[str, Tensor], Tensor]
_FLOAT_SOURCES = (torch.float32, torch.bfloat16, torch.float16)


def make_empty(
    make: Callable[[], ModuleT],
    *,
    device: torch.device | str,
    dtype: torch.dtype,
    float32: Iterable[str] = (),
) -> ModuleT:
    """A module with uninitialised weights on the device in `dtype`, in eval mode, without grads.

    Submodules named in `float32` stay in float32. Everything that `make` computes is lost: build
    tables afterwards.
    """
    with torch.device("meta"):
        module = make()
    module = module.to(dtype)
    for name in float32:
        module.get_submodule(name).float()
    return module.to_empty(device=device).eval().requires_grad_(False)


def load_into(
    targets: nn.Module | Mapping[str, Tensor],
    source: Safetensors,
    *,
    rename: Callable[[str], str | None] = lambda name: name,
    transform: Transform | None = None,
    check_finite: bool = False,
) -> None:
    """Copy every tensor of `source` into its target, cast to the target's dtype.

    `rename` gives the target's name of a tensor in the file, None to leave it out; targets may be
    views of larger weights. `transform(name in the file, tensor)` sees each tensor before the
    copy. Tensors come one at a time, so that only one tensor's pages and at most one cast copy
    exist beside the targets.
    Raises CheckpointError for a missing, extra or doubled tensor, another shape, an unusable
    dtype and, with `check_finite`, a value that is not finite in the target's dtype.
    """
    places = dict(targets.state_dict()) if isinstance(targets, nn.Module) else dict(targets)
    plan = _plan(places, source, rename)
    with torch.no_grad():
        for name, target_name in plan.items():
            target = places[target_name]
            with source.mapped(name) as tensor:
                value = tensor if transform is None else transform(name, tensor)
                target.copy_(value)
                del tensor, value
            if check_finite and not _is_finite(target):
                raise CheckpointError(
                    f"{source[name].file}: tensor {name!r}: holds values that are not finite in "
                    f"{target.dtype}; fetch the file again, or serve it in float32"
                )


def check_targets(
    targets: Mapping[str, Tensor],
    source: Safetensors,
    rename: Callable[[str], str | None] = lambda name: name,
) -> None:
    """What `load_into` checks before it copies, for a caller who copies in several steps.

    Targets may be on the meta device. Raises CheckpointError.
    """
    _plan(targets, source, rename)


def check_shapes(found: Mapping[str, Any], expected: Mapping[str, Any], file: Path | str) -> None:
    """Raise CheckpointError unless both hold the same names with the same shapes."""
    missing = sorted(set(expected) - set(found))
    extra = sorted(set(found) - set(expected))
    if missing or extra:
        raise CheckpointError(
            f"{file}: {len(found)} tensors, expected {len(expected)}; "
            f"{_listed('missing', missing)}; {_listed('unexpected', extra)}; "
            "the checkpoint is of another model, or incomplete"
        )
    for name, tensor in expected.items():
        if tuple(found[name].shape) != tuple(tensor.shape):
            raise CheckpointError(
                f"{file}: tensor {name!r}: found shape {list(found[name].shape)}, "
                f"expected {list(tensor.shape)}; the weights do not belong to this config"
            )


def load_pt(file: Path) -> Any:
    """What a `.pt` file holds, on the CPU: tensors and plain containers only, never code.

    Check a state dict with `check_shapes` afterwards. Raises CheckpointError for anything else.
    """
    try:
        return torch.load(file, map_location="cpu", weights_only=True)
    except FileNotFoundError as error:
        raise CheckpointError(f"{file}: missing; fetch it") from error
    except pickle.UnpicklingError as error:
        raise CheckpointError(
            f"{file}: holds more than tensors and plain containers and is not loaded, because "
            "pickled code could run; convert it to safetensors where you trust it"
        ) from error
    # A damaged pickle can fail in any of these ways.
    except (
        RuntimeError,
        EOFError,
        OSError,
        ValueError,
        LookupError,
        TypeError,
        AssertionError,
        AttributeError,
    ) as error:
        raise CheckpointError(f"{file}: is no torch file: {error}; fetch it again") from error


def _plan(
    places: Mapping[str, Tensor], source: Safetensors, rename: Callable[[str], str | None]
) -> dict[str, str]:
    """File name to target name, checked whole before anything is copied."""
    plan = {name: target for name in source if (target := rename(name)) is not None}
    origins: dict[str, str] = {}
    for name, target in plan.items():
        if target in origins:
            raise CheckpointError(
                f"{source.source}: {origins[target]!r} and {name!r} are both {target!r}; "
                "keep one of them"
            )
        origins[target] = name
    found = {target: source[name] for name, target in plan.items()}
    check_shapes(found, places, source.source)
    for name, target in plan.items():
        _check_dtype(source, name, places[target])
    return plan


def _check_dtype(source: Safetensors, name: str, target: Tensor) -> None:
    found = source[name].dtype
    allowed = _FLOAT_SOURCES if target.is_floating_point() else (target.dtype,)
    if found not in allowed:
        expected = " or ".join(str(dtype) for dtype in allowed)
        raise CheckpointError(
            f"{source[name].file}: tensor {name!r}: found {found}, expected {expected}; "
            "convert the checkpoint"
        )


def _is_finite(tensor: Tensor) -> bool:
    if not tensor.is_floating_point() or tensor.numel() == 0:
        return True
    # Extremes carry any NaN or infinity, and need no scratch of the tensor's size.
    low, high = torch.aminmax(tensor)
    return bool(torch.isfinite(low) & torch.isfinite(high))


def _listed(label: str, names: list[str], most: int = 5) -> str:
    if not names:
        return f"none {label}"
    rest = f" and {len(names) - most} more" if len(names) > most else ""
    return f"{label} {', '.join(names[:most])}{rest}"
