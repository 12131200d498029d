"""The ways to compute one linear layer: torch's own, cuBLASLt's algorithms, a kernel of ours."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from system1_cuda.coverage import ALIGNMENT
from system1_cuda.gemm_stream import MAX_ROWS, PLANS, StreamPlan, stream_linear

# What cuBLASLt may propose and use; split products need a workspace.
_ALGORITHMS = 16
_WORKSPACE_BYTES = 32 << 20
_ALGORITHM_WORDS = 10
# The copy engine and warpgroup products that the stream kernel is made for.
_STREAM_CAPABILITY = (9, 0)
_STREAM_DTYPES = frozenset({torch.bfloat16, torch.float16, torch.float8_e4m3fn})


@dataclass(frozen=True, slots=True, kw_only=True)
class Product:
    """x [M, K] times weight [N, K] transposed; in FP8 with a scale a row of each."""

    x: Tensor
    weight: Tensor
    bias: Tensor | None = None
    x_scale: Tensor | None = None
    weight_scale: Tensor | None = None
    dtype: torch.dtype

    @property
    def is_fp8(self) -> bool:
        return self.weight_scale is not None


@dataclass(frozen=True, slots=True)
class Way:
    """How to compute a product: one of `KINDS`, and the numbers that the kind needs."""

    kind: str
    settings: tuple[int, ...] = ()

    def run(self, product: Product) -> Tensor:
        return KINDS[self.kind](product, self.settings)


def _torch(product: Product, settings: tuple[int, ...]) -> Tensor:
    """F.linear; in FP8 the row-wise product, `settings` holding whether it sums fast."""
    if product.weight_scale is None:
        return F.linear(product.x, product.weight, product.bias)
    assert product.x_scale is not None
    return torch._scaled_mm(
        product.x,
        product.weight.t(),
        scale_a=product.x_scale[:, None],
        scale_b=product.weight_scale[None],
        out_dtype=product.dtype,
        use_fast_accum=bool(settings[0]),
    )


def _padded(product: Product, settings: tuple[int, ...]) -> Tensor:
    """FP8 by torch, with rows of nothing up to a count that its tiles fit better."""
    (rows,) = settings
    assert product.x_scale is not None
    count = product.x.shape[0]
    x = product.x.new_empty(rows, product.x.shape[1])
    x[:count] = product.x
    # Whatever the rest holds stays in its own rows, which nobody reads.
    x_scale = product.x_scale.new_empty(rows)
    x_scale[:count] = product.x_scale
    whole = Product(
        x=x, weight=product.weight, x_scale=x_scale, weight_scale=product.weight_scale,
        dtype=product.dtype,
    )  # fmt: skip
    return _torch(whole, (1,))[:count]


def _cublaslt(product: Product, settings: tuple[int, ...]) -> Tensor:
    return torch.ops.system1.gemm.default(
        product.x, product.weight, product.bias, product.x_scale, product.weight_scale,
        product.dtype, settings,
    )  # fmt: skip


def _stream(product: Product, settings: tuple[int, ...]) -> Tensor:
    return stream_linear(
        product.x, product.weight, product.bias, product.x_scale, product.weight_scale,
        product.dtype, StreamPlan(*settings),
    )  # fmt: skip


KINDS: Mapping[str, Callable[[Product, tuple[int, ...]], Tensor]] = {
    "torch": _torch,
    "padded": _padded,
    "cublaslt": _cublaslt,
    "stream": _stream,
}


def default_way(product: Product) -> Way:
    """What runs where nothing was chosen."""
    return Way("torch", (1,)) if product.is_fp8 else Way("torch")


def other_ways(product: Product) -> Iterator[Way]:
    """What else may be faster for this product on its device."""
    rows = product.x.shape[0]
    if product.is_fp8:
        for multiple in (128, 256):
            if rows % multiple:
                yield Way("padded", (-(-rows // multiple) * multiple,))
    for is_fast in (False, True) if product.is_fp8 else (False,):
        found = torch.ops.system1.gemm_algorithms.default(
            product.x, product.weight, product.bias, product.x_scale, product.weight_scale,
            product.dtype, is_fast, _ALGORITHMS, _WORKSPACE_BYTES,
        )  # fmt: skip
        for begin in range(0, len(found), _ALGORITHM_WORDS):
            yield Way("cublaslt", tuple(found[begin : begin + _ALGORITHM_WORDS]))
    if (
        rows <= MAX_ROWS
        and product.x.dtype in _STREAM_DTYPES
        # The copy engine steps from row to row by whole 16 bytes.
        and product.x.shape[1] * product.x.element_size() % ALIGNMENT == 0
        and torch.cuda.get_device_capability(product.x.device) == _STREAM_CAPABILITY
    ):
        for plan in PLANS:
            yield Way("stream", (plan.columns, plan.blocks, plan.stages, plan.warps))
