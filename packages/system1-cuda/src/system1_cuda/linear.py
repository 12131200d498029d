"""Linear layers on CUDA, each product in the way that was found fastest for its shape."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from time import monotonic
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from system1_cuda.coverage import DTYPES, is_aligned
from system1_cuda.gemm import Product, Way, default_way
from system1_cuda.gemm_choices import (
    Choice,
    Key,
    choices_file,
    circumstances,
    key_of,
    read_choices,
    write_choices,
)
from system1_cuda.gemm_stream import prepare_stream
from system1_cuda.gemm_tune import choose_for

_log = logging.getLogger(__name__)
# Weights in turn must not fit the second-level cache: 60 MB on an H200.
_CACHES = 3
# Of a weight so small that its bytes are not what takes time.
_MOST_COPIES = 32
_BUDGET_S = 60.0
# Above, nothing beat torch's choice by more than clocks waver (benchmarks/results/h200).
_MOST_ROWS = 512
# Between these the log says how far it is.
_LOG_S = 10.0

# What this process found or read; empty, so torch's own, until `tune_linear` is called.
_WAYS: dict[Key, Way] = {}


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """As F.linear, by the way that `tune_linear` chose for the shape."""
    if not _WAYS or not _covers(x, weight, bias):
        return F.linear(x, weight, bias)
    return multiply(Product(x=x, weight=weight, bias=bias, dtype=x.dtype))


def multiply(product: Product) -> Tensor:
    """The product by the way that was chosen for it, or by torch's own."""
    way = _WAYS.get(key_of(product)) if _WAYS else None
    return (way or default_way(product)).run(product)


def tune_linear(
    weights: Iterable[Any], row_counts: Sequence[int], seconds: float = _BUDGET_S
) -> None:
    """Choose a way for each shape of the weights at each count of rows, and remember it.

    An entry is a weight [N, K], or a projection: a `weight`, its `scale` [N] where that is FP8,
    and `rest`, a weight of 16 bits beside it, or None. Choices of earlier starts are read from the
    kernel cache, and what is not there is timed for about `seconds`; what was not reached, and
    products of more than 512 rows, run as torch has them. Call it before serving and before graphs
    are captured. Without it every product is torch's own, as deterministic answers need.
    """
    pairs = [(weight, scale) for weight, scale in _pairs(weights) if weight.is_cuda]
    if not pairs:
        return
    groups = _by_shape(pairs, _CACHES * _cache_bytes(pairs[0][0].device))
    device = groups[0][0][0].get_device()
    prepare_stream(groups[0][0][0].device)
    file, place = choices_file(), circumstances(device)
    known = read_choices(file, device, place)
    _WAYS.update({key: choice.way for key, choice in known.items()})
    counts = [rows for rows in row_counts if rows <= _MOST_ROWS]
    wanted = [(group, rows) for rows in counts for group in groups]
    found = _tune(wanted, known, seconds)
    _WAYS.update({key: choice.way for key, choice in found.items()})
    if found:
        try:
            write_choices(file, place, {**known, **found})
        except OSError as error:
            _log.warning("choices of products are not kept for the next start: %s", error)


Weight = tuple[Tensor, Tensor | None]


def _tune(
    wanted: Sequence[tuple[list[Weight], int]], known: dict[Key, Choice], seconds: float
) -> dict[Key, Choice]:
    """Choices for what is not known yet, as far as the time goes."""
    found: dict[Key, Choice] = {}
    started = logged = monotonic()
    for index, (weights, rows) in enumerate(wanted):
        now = monotonic()
        if now - started > seconds:
            _log.warning(
                "products of %d shapes were not timed within %.0f s and run as torch has them",
                len(wanted) - index, seconds,
            )  # fmt: skip
            break
        if now - logged > _LOG_S:
            _log.info("timing products: %d of %d shapes", index, len(wanted))
            logged = now
        products = make_products(weights, rows)
        key = key_of(products[0])
        if key not in known and key not in found:
            found[key] = choose_for(products)
    if found:
        gained = sum(c.torch_microseconds / c.microseconds for c in found.values()) / len(found)
        _log.info(
            "%d products timed in %.0f s, on average %.2f times as fast as torch's",
            len(found), monotonic() - started, gained,
        )  # fmt: skip
    return found


def make_products(weights: Sequence[Weight], rows: int) -> list[Product]:
    """Products of `rows` random rows with each weight."""
    weight, scale = weights[0]
    device, columns = weight.device, weight.shape[1]
    generator = torch.Generator(device).manual_seed(0)
    dtype = weight.dtype if scale is None else torch.bfloat16
    x = torch.randn(rows, columns, device=device, generator=generator).to(dtype)
    if scale is None:
        return [Product(x=x, weight=weight, dtype=dtype) for weight, _ in weights]
    values, scales = torch.ops.system1.quantise_rows.default(x)
    return [
        Product(x=values, weight=weight, x_scale=scales, weight_scale=scale, dtype=dtype)
        for weight, scale in weights
    ]


def _by_shape(weights: Iterable[Weight], enough_bytes: int) -> list[list[Weight]]:
    """Weights of equal shape and dtype together: no more than `enough_bytes`, and copies if less.

    Fewer would be timed out of the cache.
    """
    groups: dict[tuple[Any, ...], list[Weight]] = {}
    for weight, scale in weights:
        group = groups.setdefault((*weight.shape, weight.dtype), [])
        if len(group) * weight.nbytes < enough_bytes:
            group.append((weight, scale))
    for group in groups.values():
        weight, scale = group[0]
        missing = -(-enough_bytes // weight.nbytes) - len(group)
        group.extend((weight.clone(), scale) for _ in range(min(missing, _MOST_COPIES)))
    return list(groups.values())


def _pairs(weights: Iterable[Any]) -> Iterator[Weight]:
    for entry in weights:
        if isinstance(entry, Tensor):
            yield entry, None
            continue
        yield entry.weight, entry.scale
        if entry.rest is not None:
            yield entry.rest, None


def _cache_bytes(device: torch.device) -> int:
    return int(torch.cuda.get_device_properties(device).L2_cache_size)


def _covers(x: Tensor, weight: Tensor, bias: Tensor | None) -> bool:
    return (
        x.is_cuda
        and x.dim() == 2
        and x.shape[0] > 0
        and x.dtype in DTYPES
        and x.dtype == weight.dtype
        and (bias is None or (bias.dtype == x.dtype and bias.is_contiguous()))
        and x.is_contiguous()
        and weight.is_contiguous()
        and is_aligned(x, weight, bias)
    )
