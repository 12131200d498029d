"""Linear layers of few tokens: all processors stream equal shares of the weight."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

# Two parts of a tile's tokens, 128 and 64: beyond them sums no longer fit the registers.
MAX_ROWS = 192
# Bytes of K a step: one line of the copy engine's widest swizzle.
_STEP_BYTES = 128
_COUNTERS = 1 << 20


@dataclass(frozen=True, slots=True)
class StreamPlan:
    """How the product is cut: weight rows a tile, blocks a processor, copies in flight, warps."""

    columns: int
    blocks: int
    stages: int
    warps: int


PLANS = (
    StreamPlan(columns=128, blocks=1, stages=5, warps=8),
    StreamPlan(columns=128, blocks=2, stages=3, warps=4),
    StreamPlan(columns=64, blocks=2, stages=4, warps=4),
    StreamPlan(columns=256, blocks=1, stages=4, warps=8),
)


def token_parts(rows: int) -> tuple[int, int]:
    """Sizes of the two parts of a tile that hold `rows` tokens; the second may be 0."""
    assert 0 < rows <= MAX_ROWS
    sixteens = -(-rows // 16)
    first = 1 << (sixteens.bit_length() - 1)
    rest = sixteens - first
    if not rest:
        return 16 * first, 0
    second = 1 << (rest - 1).bit_length()
    return (32 * first, 0) if second == first and first < 8 else (16 * first, 16 * second)


def stream_linear(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    x_scale: Tensor | None,
    weight_scale: Tensor | None,
    dtype: torch.dtype,
    plan: StreamPlan,
    *,
    processors: int | None = None,
) -> Tensor:
    """x [M, K] times weight [N, K] transposed, in `dtype`; FP8 operands come with their scales.

    Partial sums of a tile are added in the order of K by the block that ends last, so that equal
    calls give equal bits. Call `prepare_stream` first. A call must not overlap with the 500th
    behind it on the device, which uses its counters again.
    """
    (rows, depth), columns = x.shape, weight.shape[0]
    first, second = token_parts(rows)
    step = _STEP_BYTES // x.element_size()
    steps = triton.cdiv(depth, step)
    tiles = triton.cdiv(columns, plan.columns)
    share = triton.cdiv(steps * tiles, plan.blocks * (processors or _processors(x.device)))
    blocks = triton.cdiv(steps * tiles, share)
    out = torch.empty(rows, columns, dtype=dtype, device=x.device)
    size = plan.columns * (first + second)
    partials = torch.empty(2 * blocks * size, dtype=torch.float32, device=x.device)
    _stream[(blocks,)](
        TensorDescriptor.from_tensor(x, [first, step]),
        TensorDescriptor.from_tensor(x, [second or first, step]),
        TensorDescriptor.from_tensor(weight, [plan.columns, step]),
        out, bias, x_scale, weight_scale, partials, _counters(x.device).take(tiles),
        rows, columns, steps, tiles * steps, share,
        FIRST=first, SECOND=second, COLUMNS=plan.columns, STEP=step,
        num_warps=plan.warps, num_stages=plan.stages,
    )  # fmt: skip
    return out


class _Counters:
    """Zeros that each call leaves as it found them, from a ring so that neighbours differ."""

    def __init__(self, device: torch.device) -> None:
        self._values = torch.zeros(_COUNTERS, dtype=torch.int32, device=device)
        self._next = 0

    def take(self, count: int) -> Tensor:
        if self._next + count > _COUNTERS:
            self._next = 0
        found = self._values[self._next : self._next + count]
        # The next begins at a multiple of 16 bytes, as every compiled kernel expects.
        self._next += -(-count // 4) * 4
        return found


def prepare_stream(device: torch.device) -> None:
    """Allocate what calls share; before any of them is captured in a graph."""
    _counters(device)
    torch.cuda.synchronize(device)


@cache
def _counters(device: torch.device) -> _Counters:
    return _Counters(device)


@cache
def _processors(device: torch.device) -> int:
    return torch.cuda.get_device_properties(device).multi_processor_count


# Row counts and shares differ from call to call: one kernel serves them all.
@triton.jit(do_not_specialize=["rows", "steps", "total", "share"])
def _stream(
    x_first, x_second, weight, out, bias, x_scale, weight_scale, partials, counters,
    rows, columns, steps, total, share,
    FIRST: tl.constexpr, SECOND: tl.constexpr, COLUMNS: tl.constexpr, STEP: tl.constexpr,
):  # fmt: skip
    """Steps [block * share, (block + 1) * share) of all tiles, one tile after another."""
    block = tl.program_id(0)
    start = block * share
    end = min(start + share, total)
    SIZE: tl.constexpr = COLUMNS * (FIRST + SECOND)
    for tile in range(start // steps, (end - 1) // steps + 1):
        begin = max(start - tile * steps, 0)
        stop = min(end - tile * steps, steps)
        sums = tl.zeros((COLUMNS, FIRST), tl.float32)
        more = tl.zeros((COLUMNS, SECOND if SECOND else 16), tl.float32)
        for step in range(begin, stop):
            at = step * STEP
            part = weight.load([tile * COLUMNS, at])
            sums = tl.dot(part, tl.trans(x_first.load([0, at])), sums)
            if SECOND:
                more = tl.dot(part, tl.trans(x_second.load([FIRST, at])), more)
        if stop - begin == steps:
            _store(out, sums, bias, x_scale, weight_scale, tile, 0, rows, columns, COLUMNS, FIRST)
            if SECOND:
                _store(
                    out, more, bias, x_scale, weight_scale, tile, FIRST, rows, columns,
                    COLUMNS, SECOND,
                )  # fmt: skip
        else:
            # A block has one tile that began before it and one that goes on behind it at most.
            mine = partials + (2 * block + (begin == 0)).to(tl.int64) * SIZE
            tl.store(mine + _places(COLUMNS, FIRST), sums)
            if SECOND:
                tl.store(mine + COLUMNS * FIRST + _places(COLUMNS, SECOND), more)
            tl.debug_barrier()
            from_block = tile * steps // share
            to_block = ((tile + 1) * steps - 1) // share
            seen = tl.atomic_add(counters + tile, 1, sem="acq_rel")
            if seen == to_block - from_block:
                tl.store(counters + tile, 0)
                sums = _add_up(partials, from_block, to_block, SIZE, COLUMNS, FIRST)
                _store(
                    out, sums, bias, x_scale, weight_scale, tile, 0, rows, columns, COLUMNS, FIRST
                )
                if SECOND:
                    rest = partials + COLUMNS * FIRST
                    more = _add_up(rest, from_block, to_block, SIZE, COLUMNS, SECOND)
                    _store(
                        out, more, bias, x_scale, weight_scale, tile, FIRST, rows, columns,
                        COLUMNS, SECOND,
                    )  # fmt: skip


@triton.jit
def _places(COLUMNS: tl.constexpr, ROWS: tl.constexpr):
    return tl.arange(0, COLUMNS)[:, None] * ROWS + tl.arange(0, ROWS)[None, :]


@triton.jit
def _add_up(
    partials, from_block, to_block,
    SIZE: tl.constexpr, COLUMNS: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """A tile's partial sums in the order of K: its first block's second place, then first ones."""
    sums = tl.zeros((COLUMNS, ROWS), tl.float32)
    for block in tl.range(from_block, to_block + 1, num_stages=1):
        theirs = partials + (2 * block + (block == from_block)).to(tl.int64) * SIZE
        # Past the first-level cache, which is not coherent.
        sums += tl.load(theirs + _places(COLUMNS, ROWS), cache_modifier=".cg")
    return sums


@triton.jit
def _store(
    out, sums, bias, x_scale, weight_scale, tile, first, rows, columns,
    COLUMNS: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    column = tile * COLUMNS + tl.arange(0, COLUMNS)
    row = first + tl.arange(0, ROWS)
    is_column, is_row = column < columns, row < rows
    if weight_scale is not None:
        sums *= tl.load(weight_scale + column, mask=is_column, other=0.0)[:, None]
        sums *= tl.load(x_scale + row, mask=is_row, other=0.0)[None, :]
    if bias is not None:
        sums += tl.load(bias + column, mask=is_column, other=0.0).to(tl.float32)[:, None]
    places = row.to(tl.int64)[:, None] * columns + column[None, :]
    values = tl.trans(sums).to(out.dtype.element_ty)
    tl.store(out + places, values, mask=is_row[:, None] & is_column[None, :])
