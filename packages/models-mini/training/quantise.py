"""Symmetric int8 with one scale for each row, and back."""

import numpy as np

SCALE_BITS = 16  # with 7 bits of an int8 the product fits a float32 exactly


def quantise_rows(matrix):
    """int8 values and float32 scales [rows]; rows of zeros keep scale 1.

    Scales have few enough bits that what `dequantise_rows` gives is quantised to the same again.
    """
    peak = np.abs(matrix).max(axis=1).astype(np.float64)
    scales = _round_up(np.where(peak > 0, peak / 127, 1))
    return np.rint(matrix.astype(np.float64) / scales[:, None]).astype(np.int8), scales


def dequantise_rows(values, scales):
    """float32, exactly value x scale."""
    return values.astype(np.float32) * scales[:, None]


def _round_up(scales):
    mantissa, exponent = np.frexp(scales)
    kept = np.ceil(mantissa * 2**SCALE_BITS) / 2**SCALE_BITS
    return np.ldexp(kept, exponent).astype(np.float32)
