"""Serving dtypes by the names the command line uses."""

from __future__ import annotations

import torch

from system1_core.errors import ConfigError

DTYPES = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}


# Weights of large products in FP8, one scale a row; everything else in this dtype.
FP8 = "fp8"
FP8_COMPUTES_IN = torch.bfloat16


def compute_dtype(name: str) -> torch.dtype:
    """As `torch_dtype`, for models that can also be served in FP8: what surrounds its products."""
    return FP8_COMPUTES_IN if name == FP8 else torch_dtype(name)


def torch_dtype(name: str) -> torch.dtype:
    """The torch dtype of a serving dtype's name; raises ConfigError for any other name."""
    if name not in DTYPES:
        known = ", ".join(DTYPES)
        raise ConfigError(f"--dtype {name}: no such dtype of torch models; use one of {known}")
    return DTYPES[name]
