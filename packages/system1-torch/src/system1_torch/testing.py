"""Kernel test kit: ragged batches, poisoned memory, relative error against float32."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

# Sequence lengths by readable id: alone, length one, odd, tile edges, mixed.
RAGGED: Mapping[str, tuple[int, ...]] = {
    "one-token": (1,),
    "all-length-one": (1, 1, 1),
    "one-sequence": (48,),
    "odd": (7, 13, 101),
    "tile-edges": (63, 64, 65, 127, 128, 129),
    "length-one-among-long": (200, 1, 257, 1),
    "empty-among-others": (5, 0, 17),
}

# Relative error allowed against float32: rounding of inputs and output, sums in float32.
TOLERANCE: Mapping[torch.dtype, float] = {
    torch.float32: 2e-6,
    torch.float16: 1e-3,
    torch.bfloat16: 8e-3,
}

# Eight rows keep even a vector of 16-bit values aligned to 16 bytes.
_POISON_ROWS = 8


def cu_seqlens_of(lengths: Sequence[int], device: torch.device | str = "cpu") -> Tensor:
    """Where each packed sequence begins, and the end: [N + 1] int32."""
    return torch.tensor([0, *lengths]).cumsum(0).to(device=device, dtype=torch.int32)


def fresh_generator() -> torch.Generator:
    """A CPU generator with a new seed; failures print it (`initial_seed()`)."""
    return torch.Generator().manual_seed(secrets.randbits(48))


def poisoned(
    shape: Sequence[int],
    *,
    generator: torch.Generator,
    dtype: torch.dtype,
    device: torch.device | str = "cpu",
    scale: float = 1.0,
) -> Tensor:
    """Random normal values with rows of NaN before and after them in memory.

    A kernel that reads past its rows gives NaN and fails.
    """
    rows, *rest = shape
    whole = torch.full((rows + 2 * _POISON_ROWS, *rest), torch.nan, dtype=dtype, device=device)
    view = whole[_POISON_ROWS : _POISON_ROWS + rows]
    values = torch.randn(tuple(shape), generator=generator) * scale
    view.copy_(values)
    return view


def relative_error(found: Tensor, expected: Tensor) -> float:
    """Length of the difference over length of `expected`, in float64; infinite for any NaN."""
    if found.shape != expected.shape:
        raise AssertionError(f"shape {list(found.shape)}, expected {list(expected.shape)}")
    difference = (found.double() - expected.double()).norm()
    length = expected.double().norm()
    if not torch.isfinite(difference):
        return float("inf")
    return float(difference / length) if length > 0 else float(difference)


def check_kernel(
    kernel: Callable[..., Any],
    reference: Callable[..., Any],
    inputs: Sequence[Any],
    *,
    generator: torch.Generator,
    tolerance: float | None = None,
    written: Iterable[int] = (),
) -> float:
    """Run `kernel` on `inputs` and compare with `reference` on the same values in float32.

    Outputs, and the inputs at the indexes `written`, must agree within `tolerance` (default by
    the first input's dtype); every other input must be unchanged. Returns the largest error.
    """
    dtype = inputs[0].dtype
    limit = TOLERANCE[dtype] if tolerance is None else tolerance
    before = [value.clone() if isinstance(value, Tensor) else value for value in inputs]
    upcast = [_upcast(value) for value in before]
    expected = _tensors(reference(*upcast))
    found = _tensors(kernel(*inputs))
    assert len(found) == len(expected), f"{len(found)} outputs, expected {len(expected)}"
    error = max((relative_error(f, e) for f, e in zip(found, expected, strict=True)), default=0.0)
    assert error <= limit, (
        f"relative error {error:.2e} > {limit:.0e}, seed {generator.initial_seed()}"
    )
    for index, (value, old) in enumerate(zip(inputs, before, strict=True)):
        if isinstance(value, Tensor) and index not in set(written):
            assert torch.equal(value, old), f"input {index} was changed"
    return error


def _upcast(value: Any) -> Any:
    if isinstance(value, Tensor) and value.is_floating_point():
        return value.float()
    return value


def _tensors(value: Any) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value]
    return [] if value is None else list(value)
