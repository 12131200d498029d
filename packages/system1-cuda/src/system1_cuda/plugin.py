"""The NVIDIA backend."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from system1_core.backend import Backend
from system1_core.hookspecs import hookimpl

_log = logging.getLogger(__name__)
# Ampere: the first chips with bfloat16 matrix units and asynchronous copies.
_LOWEST_CAPABILITY = (8, 0)


class CudaBackend(Backend):
    """CUDA with our kernels; they are compiled when `ops` is first asked for, then cached.

    Without a compiler, or if it fails, a warning says why and the references serve.
    """

    name = "cuda"
    framework = "torch"
    device = "cuda"
    priority = 10
    dtypes = ("bfloat16", "float16", "float32", "fp8")
    default_dtype = "bfloat16"

    def __init__(self) -> None:
        self._ops: Mapping[str, Callable[..., Any]] | None = None

    def is_available(self) -> bool:
        import torch

        if not torch.cuda.is_available():
            return False
        devices = range(torch.cuda.device_count())
        return min(map(torch.cuda.get_device_capability, devices)) >= _LOWEST_CAPABILITY

    @property
    def ops(self) -> Mapping[str, Callable[..., Any]]:
        if self._ops is None:
            self._ops = _load_ops()
        return self._ops

    def build_kernels(self) -> Path:
        """Compile for this machine's devices unless cached; raises KernelBuildError."""
        from system1_cuda.build import build_kernels

        return build_kernels()


def _load_ops() -> Mapping[str, Callable[..., Any]]:
    from system1_cuda.build import KernelBuildError, load_kernels

    try:
        load_kernels()
    except KernelBuildError as error:
        _log.warning("CUDA kernels are not available, plain torch serves instead: %s", error)
        return {}
    try:
        from system1_cuda.offered import OPS
    except ImportError as error:
        _log.warning("CUDA kernels need Triton, plain torch serves instead: %s", error)
        return {}
    return OPS


@hookimpl
def system1_register_backends() -> Iterable[Backend]:
    return [CudaBackend()]
