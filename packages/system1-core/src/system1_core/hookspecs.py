"""The five hooks, and the two markers.

All are called once at start, none on the request path. None may import torch or touch a device.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import pluggy

if TYPE_CHECKING:
    from system1_core.backend import Backend
    from system1_core.family import ModelFamily, Replacement, SchedulerKind

hookspec = pluggy.HookspecMarker("system1")
hookimpl = pluggy.HookimplMarker("system1")


@hookspec
def system1_register_models() -> Iterable[ModelFamily]:  # type: ignore[empty-body]
    """Model families this plugin serves."""


@hookspec
def system1_register_processors() -> Iterable[Replacement]:  # type: ignore[empty-body]
    """Processors that replace the one a family brings, for a named family and backend."""


@hookspec
def system1_register_executors() -> Iterable[Replacement]:  # type: ignore[empty-body]
    """Executors that replace the one a family brings, for a named family and backend."""


@hookspec
def system1_register_schedulers() -> Iterable[SchedulerKind]:  # type: ignore[empty-body]
    """Schedulers, by the name `--scheduler` takes."""


@hookspec
def system1_register_backends() -> Iterable[Backend]:  # type: ignore[empty-body]
    """Devices, with the operations they offer to the models of one framework."""
