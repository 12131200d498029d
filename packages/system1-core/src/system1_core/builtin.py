"""Core's own plugin: the two schedulers and the host backend."""

from __future__ import annotations

from collections.abc import Iterable

from system1_core.backend import Backend
from system1_core.family import SchedulerKind
from system1_core.hookspecs import hookimpl
from system1_core.scheduler.batch import BatchScheduler
from system1_core.scheduler.serial import SerialScheduler


@hookimpl
def system1_register_schedulers() -> Iterable[SchedulerKind]:
    return [
        SchedulerKind(
            name="batch",
            make=BatchScheduler,
            description="fills batches across requests; a batch leaves when the executor is free",
        ),
        SchedulerKind(
            name="serial",
            make=SerialScheduler,
            description="one request at a time: the reference for parity",
        ),
    ]


@hookimpl
def system1_register_backends() -> Iterable[Backend]:
    return [Backend()]
