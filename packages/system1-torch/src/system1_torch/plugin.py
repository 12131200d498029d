"""The plain torch backends: every operation is its reference."""

from __future__ import annotations

import os
from collections.abc import Iterable

from system1_core.backend import Backend
from system1_core.hookspecs import hookimpl


class TorchBackend(Backend):
    """One torch device without kernels of ours; torch is imported when first asked."""

    framework = "torch"

    def __init__(self, *, device: str, dtypes: tuple[str, ...], default_dtype: str) -> None:
        self.name = f"torch-{device}"
        self.device = device
        self.dtypes = dtypes
        self.default_dtype = default_dtype

    def is_available(self) -> bool:
        _limit_spinning()
        from system1_torch.device import is_device_available

        return is_device_available(self.device)


def _limit_spinning() -> None:
    """Let OpenMP's idle workers sleep after some microseconds; takes effect before torch loads.

    By default they spin for milliseconds, which on shared cores costs a small model ten times its
    own time (measured: 92 to 280 ms against 11 to 21 on two busy virtual cores).
    """
    os.environ.setdefault("GOMP_SPINCOUNT", "2000")


@hookimpl
def system1_register_backends() -> Iterable[Backend]:
    return [
        TorchBackend(device="cpu", dtypes=("float32", "bfloat16"), default_dtype="float32"),
        TorchBackend(
            device="cuda", dtypes=("bfloat16", "float16", "float32"), default_dtype="bfloat16"
        ),
        TorchBackend(
            device="mps", dtypes=("float32", "float16", "bfloat16"), default_dtype="float32"
        ),
    ]
