"""Time the ways to compute a product on the device, once."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from time import perf_counter

import torch
from torch import Tensor
from triton.errors import TritonError

from system1_cuda.gemm import Product, Way, default_way, other_ways
from system1_cuda.gemm_choices import Choice

_log = logging.getLogger(__name__)
# All ways in a few calls, then the best of them and torch's own in more.
_FIRST_CALLS, _MORE_CALLS = 3, 12
_FINALISTS = 4
# Another way must win by more than measurements differ.
_MARGIN = 0.97
# Relative error against torch's own result; of two roundings to the output's dtype, and of FP8's
# sums within the matrix units.
TOLERANCE = {torch.float32: 1e-5, torch.float16: 1e-3, torch.bfloat16: 5e-3}

Measure = Callable[[Way, int], float]


def choose(
    plain: Way, others: Sequence[Way], measure: Measure, agrees: Callable[[Way], bool]
) -> Choice:
    """The fastest way whose result agrees; `plain` unless another is faster beyond doubt.

    `measure(way, calls)` gives microseconds a call, and raises RuntimeError for a way that cannot
    run.
    """
    quick: dict[Way, float] = {}
    for way in dict.fromkeys(others):
        try:
            quick[way] = measure(way, _FIRST_CALLS)
        except RuntimeError as error:
            _log.debug("%s cannot run: %s", way, error)
    best = sorted(quick, key=quick.__getitem__)[:_FINALISTS]
    times = {way: measure(way, _MORE_CALLS) for way in (plain, *best)}
    limit = times[plain] * _MARGIN
    for way in sorted(best, key=times.__getitem__):
        if times[way] < limit and agrees(way):
            return Choice(way, times[way], times[plain])
    return Choice(plain, times[plain], times[plain])


def choose_for(products: Sequence[Product]) -> Choice:
    """The fastest way for equal products of other weights, which are used in turn."""
    first = products[0]
    plain = default_way(first)
    expected = plain.run(first).float()
    limit = TOLERANCE[first.dtype]

    def agrees(way: Way) -> bool:
        return relative_error(way.run(first), expected) <= limit

    return choose(plain, list(other_ways(first)), DeviceTimer(products), agrees)


def relative_error(found: Tensor, expected: Tensor) -> float:
    """Norm of the difference over the norm of what was expected; NaN compares with nothing."""
    return float((found.float() - expected).norm() / expected.norm())


class DeviceTimer:
    """Microseconds of a call on the device; weights in turn, so that they come from memory."""

    # Above the clock of any device, so that waits are not too short.
    _CYCLES_A_MICROSECOND = 2_500

    def __init__(self, products: Sequence[Product]) -> None:
        self._products = products

    def __call__(self, way: Way, calls: int) -> float:
        count = len(self._products)
        # Compiles and loads, then shows what a launch costs the host.
        try:
            way.run(self._products[0])
        except TritonError as error:
            # More registers or shared memory than the device has.
            raise RuntimeError(str(error)) from error
        torch.cuda.synchronize()
        started = perf_counter()
        way.run(self._products[0])
        launch_us = (perf_counter() - started) * 1e6
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        # The device waits until all calls are queued: launches are not what is timed.
        torch.cuda._sleep(int(self._CYCLES_A_MICROSECOND * (100 + 2 * launch_us * calls)))
        begin.record()
        for call in range(calls):
            way.run(self._products[(call + 1) % count])
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) * 1000 / calls
