"""A model family: what a plugin registers, and what its loaders get."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from system1_core.backend import Backend
from system1_core.request import EMPTY, QUESTION_TYPES

if TYPE_CHECKING:
    from system1_core.checkpoint import Checkpoint
    from system1_core.executor import Executor
    from system1_core.processor import Processor
    from system1_core.scheduler import Scheduler, SchedulerLimits
    from system1_core.wire.dialect import Dialect


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """A setting that a family declares; `--option FAMILY.NAME=VALUE` fills it.

    `parse` turns the text into the value and raises ValueError with the remedy.
    """

    name: str
    help: str
    default: Any = None
    parse: Callable[[str], Any] = str


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What the two loaders of a family get.

    `folder` is the local folder the user named, None when none was. `fetch(name)` gives the
    verified folder of one of the family's pinned checkpoints and pulls it on first use.
    `options` holds every option the family declares, defaults filled in.
    """

    family: str
    folder: Path | None = None
    options: Mapping[str, Any] = field(default_factory=lambda: EMPTY)
    backend: Backend = field(default_factory=Backend)
    dtype: str = "float32"
    deterministic: bool = False
    fetch: Callable[[str], Path] = lambda name: Path(name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """A route of a family's own, for instance CLM's `/v1/rank`.

    `answer(engine, body, deadline)` is async, gets the parsed JSON and a time of the event loop's
    clock, and returns the JSON to send; it raises the errors of `system1_core.errors`. The server
    does keys, limits, request ids and error bodies.
    """

    path: str
    answer: Callable[..., Any]
    summary: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFamily:
    """A family of models behind one name.

    `aliases` are further names a request's `model` may use. `default_rank` decides which installed
    family `system1 serve` picks without a name: the highest, if it is above 0. `example` is the
    body of a request that the family answers (warm-up and `system1 check` send it).
    `framework` names the kind of backend it needs, `devices` where it can run.
    `reference` is the dialect of the original implementation, if the family reproduces it.
    `export(load, folder)` writes a merged checkpoint that the family serves; `load.dtype` is the
    dtype to write, and the folder is there and empty.
    """

    name: str
    load_processor: Callable[[Load], Processor]
    load_executor: Callable[[Load], Executor]
    description: str = ""
    release_date: str = ""
    aliases: Sequence[str] = ()
    checkpoints: Sequence[Checkpoint] = ()
    options: Sequence[Option] = ()
    default_rank: int = 0
    example: Mapping[str, Any] | None = None
    question_types: Sequence[str] = QUESTION_TYPES
    accepts_images: bool = False
    framework: str = "host"
    devices: Sequence[str] = ("cpu", "cuda", "mps")
    routes: Sequence[Route] = ()
    reference: Callable[[Mapping[str, Any]], Dialect] | None = None
    export: Callable[[Load, Path], None] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Replacement:
    """A processor or executor that takes the place of a family's own.

    `family` names the family, `backend` the backend it is for (None: any). The highest `priority`
    wins; two of one priority are an error.
    """

    family: str
    load: Callable[[Load], Any]
    backend: str | None = None
    priority: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerKind:
    """A scheduler by name; `make(execute, limits)` builds one for one engine."""

    name: str
    make: Callable[[Callable[..., Any], SchedulerLimits], Scheduler]
    description: str = ""
