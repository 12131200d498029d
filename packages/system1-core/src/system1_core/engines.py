"""The engines of one process: built from the configuration, resolved by name."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from system1_core.backend import Backend
from system1_core.checkpoint import checkpoint_named, pull, verify
from system1_core.config import ModelChoice, ServeConfig, check_options, family_options
from system1_core.engine import Engine, EngineParts
from system1_core.errors import ConfigError, NotFound, abridged
from system1_core.family import Load, ModelFamily
from system1_core.metrics import EngineMetrics, Metrics
from system1_core.plugins import Plugins, replacement
from system1_core.request import Request
from system1_core.wire.dialect import Body, RequestLimits
from system1_core.wire.systemone import SystemOne

# The SDKs' default name; the first family on the command line answers to it.
LATEST = "jev-latest"


class Engines:
    """Every engine of the process, in the order of the command line.

    `state` is "loading" until all have started, then "ok", "draining" or "failed".
    """

    def __init__(self, engines: Sequence[Engine]) -> None:
        self.all = tuple(engines)
        self.draining = False

    @property
    def state(self) -> str:
        """The state of the process: the worst of its engines'."""
        states = {engine.state for engine in self.all}
        if states & {"failed", "closed"}:
            return "failed"
        if "loading" in states:
            return "loading"
        return "draining" if self.draining else "ok"

    @property
    def reason(self) -> str:
        """Why an engine failed."""
        return "; ".join(f"{engine.name}: {engine.reason}" for engine in self.all if engine.reason)

    @property
    def first(self) -> Engine:
        """The engine that answers when the request names no model."""
        return self.all[0]

    def resolve(self, name: str | None, *, reference: bool = False) -> Engine:
        """The engine a request's `model` means.

        A family's own name wins over an alias, and the first family that claims an alias over
        later ones. Raises NotFound naming the models.
        """
        if name is None or name == LATEST:
            return self.first
        for engine in self.all:
            if engine.name == name:
                return engine
        for engine in self.all:
            if name in engine.names:
                return engine
        if reference and self.first.reference and self.first.reference.accepts_model(name):
            return self.first
        served = ", ".join(engine.name for engine in self.all)
        raise NotFound(f"model {abridged(name)!r} is not served here; served: {served}")

    async def start(self) -> None:
        """Load and warm every engine in turn; the first failure ends it."""
        for engine in self.all:
            await engine.start(example_request(engine.family))

    async def close(self) -> None:
        """Close every engine."""
        for engine in self.all:
            await engine.close()

    def models(self) -> dict[str, Any]:
        """The body of GET /v1/models, the official shape and OpenAI's in one."""
        entries = [(LATEST, self.first)]
        entries += [(name, engine) for engine in self.all for name in engine.names]
        unique = dict(reversed(entries))  # the first claim of a name wins
        return {
            "models": [_model_entry(name, unique[name]) for name in dict(entries)],
            "object": "list",
            "data": [
                {"id": name, "object": "model", "created": 0, "owned_by": "system1"}
                for name in dict(entries)
            ],
        }


def _model_entry(name: str, engine: Engine) -> dict[str, Any]:
    family = engine.family
    return {
        "name": name,
        "description": family.description,
        "release_date": family.release_date,
        "x_family": family.name,
        "x_question_types": list(family.question_types),
        "x_images": family.accepts_images,
    }


def example_request(family: ModelFamily) -> Request | None:
    """The family's example as the wire would parse it."""
    if family.example is None:
        return None
    return SystemOne().parse(Body(json=family.example), RequestLimits())


def build(config: ServeConfig, plugins: Plugins, metrics: Metrics) -> Engines:
    """Engines for every NAME[=FOLDER] of the configuration, none of them loaded yet.

    Raises ConfigError, PluginError or CheckpointError.
    """
    choices = list(config.models) or [ModelChoice(name=plugins.default_family().name)]
    families = [plugins.family(choice.name) for choice in choices]
    names = [family.name for family in families]
    if len(set(names)) < len(names):
        raise ConfigError(f"a model is named twice: {', '.join(names)}")
    check_options(families, config.options)
    return Engines(
        [
            Engine(_parts(family, choice, config, plugins, metrics))
            for family, choice in zip(families, choices, strict=True)
        ]
    )


def make_load(
    family: ModelFamily, choice: ModelChoice, config: ServeConfig, plugins: Plugins
) -> Load:
    """What the family's loaders get for one NAME[=FOLDER] of the configuration."""
    backend = select_backend(family, config.device, plugins)
    return Load(
        family=family.name,
        folder=_checked_folder(family, choice, config),
        options=family_options(family, config.options),
        backend=backend,
        dtype=select_dtype(family, backend, config.dtype),
        deterministic=config.deterministic,
        fetch=lambda name: pull(checkpoint_named(family, name)),
    )


def _parts(
    family: ModelFamily,
    choice: ModelChoice,
    config: ServeConfig,
    plugins: Plugins,
    metrics: Metrics,
) -> EngineParts:
    load = make_load(family, choice, config, plugins)
    backend = load.backend
    if config.scheduler not in plugins.schedulers:
        known = ", ".join(sorted(plugins.schedulers))
        raise ConfigError(f"--scheduler {config.scheduler!r}: installed are {known}")
    return EngineParts(
        family=family,
        load=load,
        load_processor=replacement(plugins.processors, family.name, backend.name)
        or family.load_processor,
        load_executor=replacement(plugins.executors, family.name, backend.name)
        or family.load_executor,
        scheduler=plugins.schedulers[config.scheduler].value,
        metrics=EngineMetrics(metrics, family.name),
        max_queued_requests=config.max_queued_requests,
        max_queued_prompts=config.max_queued_prompts,
    )


def _checked_folder(family: ModelFamily, choice: ModelChoice, config: ServeConfig) -> Path | None:
    """The user's folder; with --require-pinned only one that a pin's hashes prove."""
    if choice.folder is not None and config.require_pinned:
        if not family.checkpoints:
            raise ConfigError(f"--require-pinned: {family.name} has no pin to check a folder by")
        verify(choice.folder, family.checkpoints[0])
    return choice.folder


def select_backend(family: ModelFamily, device: str, plugins: Plugins) -> Backend:
    """The available backend of the family's framework with the highest priority.

    A family that runs on the CPU only (mini) stays there whatever device was asked for. Raises
    ConfigError naming what is installed.
    """
    offered = [
        registered.value
        for registered in plugins.backends.values()
        if registered.value.framework == family.framework
        and registered.value.device in family.devices
    ]
    wanted = "cpu" if tuple(family.devices) == ("cpu",) else device
    fitting = [backend for backend in offered if wanted in ("auto", backend.device)]
    for backend in sorted(fitting, key=lambda backend: backend.priority, reverse=True):
        if backend.is_available():
            return backend
    known = ", ".join(f"{backend.name} ({backend.device})" for backend in offered) or "none"
    raise ConfigError(
        f"--device {device}: no backend available for {family.name} (framework "
        f"{family.framework}); installed: {known}"
    )


def select_dtype(family: ModelFamily, backend: Backend, dtype: str) -> str:
    """The dtype to load in: the backend's default for "auto"; models off torch keep their own."""
    if dtype == "auto" or backend.framework == "host":
        return backend.default_dtype
    if dtype not in backend.dtypes:
        raise ConfigError(
            f"--dtype {dtype}: the backend {backend.name} serves {', '.join(backend.dtypes)}"
        )
    return dtype


def export_model(config: ServeConfig, plugins: Plugins, out: Path) -> Path:
    """Write the merged checkpoint of the configuration's one model into `out`; returns it.

    Raises ConfigError for a family that has nothing to merge and for a folder that is not empty.
    """
    choice = config.models[0]
    family = plugins.family(choice.name)
    check_options([family], config.options)
    if family.export is None:
        able = [name for name, one in sorted(plugins.families.items()) if one.value.export]
        raise ConfigError(
            f"{family.name} has no adapter to merge; export is for {', '.join(able) or 'none'}"
        )
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ConfigError(f"--out {out}: exists and is not an empty folder; name another")
    out.mkdir(parents=True, exist_ok=True)
    family.export(make_load(family, choice, config, plugins), out)
    return out
