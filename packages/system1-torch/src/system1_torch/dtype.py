"""Serving dtypes by the names the command line uses."""

from __future__ import annotations

import torch

from system1_core.errors import ConfigError

DTYPES = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}


def torch_dtype(name: str) -> torch.dtype:
    """The torch dtype of a serving dtype's name; raises ConfigError for any other name."""
    if name not in DTYPES:
        known = ", ".join(DTYPES)
        raise ConfigError(f"--dtype {name}: no such dtype of torch models; use one of {known}")
    return DTYPES[name]
