"""The hook: families of released sizes whose weights are random."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import models_cuas1.plugin
import models_omnijev.plugin
import models_openjev.plugin
from system1_core.family import Load, ModelFamily
from system1_core.hookspecs import hookimpl

if TYPE_CHECKING:
    from system1_core.executor import Executor
    from system1_core.processor import Processor

# The family that each stands for.
ORIGINALS = {
    "openjev-27b-random": "openjev-27b",
    "cuas1-4b-random": "cuas1",
    "omnijev-4b-random": "omnijev",
}
_PLUGINS = (models_openjev.plugin, models_cuas1.plugin, models_omnijev.plugin)


@cache
def _temporary_folder(name: str) -> tuple[Path, TemporaryDirectory[str]]:
    from benchmarks_random_weights.files import write_files

    # Kept beside its path: the folder goes when the process does.
    folder = TemporaryDirectory(prefix=f"{name}-")
    write_files(name, Path(folder.name))
    return Path(folder.name), folder


def _original_load(load: Load) -> Load:
    """What the family's own loader gets: its own name, and a folder with everything but weights."""
    folder = load.folder or _temporary_folder(load.family)[0]
    return replace(load, family=ORIGINALS[load.family], folder=folder)


def _random(name: str, family: ModelFamily) -> ModelFamily:
    def load_processor(load: Load) -> Processor:
        return family.load_processor(_original_load(load))

    def load_executor(load: Load) -> Executor:
        from benchmarks_random_weights.weights import random_weights

        load = _original_load(load)
        with random_weights(load.backend.device):
            return family.load_executor(load)

    return replace(
        family,
        name=name,
        description=f"{family.name} with random weights, for benchmarks",
        load_processor=load_processor,
        load_executor=load_executor,
        aliases=(),
        checkpoints=(),
        default_rank=0,
        export=None,
    )


@hookimpl
def system1_register_models() -> Iterable[ModelFamily]:
    families = {
        family.name: family for plugin in _PLUGINS for family in plugin.system1_register_models()
    }
    return [_random(name, families[original]) for name, original in ORIGINALS.items()]
