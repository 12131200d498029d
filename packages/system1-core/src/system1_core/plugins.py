"""Discovery: every installed plugin, once at start, as one `Plugins` value."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Generic, TypeVar

import pluggy

from system1_core import hookspecs
from system1_core.backend import Backend
from system1_core.errors import ConfigError, PluginError
from system1_core.family import Load, ModelFamily, Replacement, SchedulerKind

GROUP = "system1"
DISABLED_VARIABLE = "SYSTEM1_DISABLED_PLUGINS"

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Registered(Generic[T]):
    """Something a plugin registered, and the distribution it came from."""

    value: T
    distribution: str


@dataclass(frozen=True, slots=True)
class Plugin:
    """One entry point; `error` says why it was set aside, empty when it works."""

    name: str
    distribution: str
    version: str
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plugins:
    """All that is installed, by name; broken plugins are listed and set aside."""

    plugins: Sequence[Plugin]
    families: dict[str, Registered[ModelFamily]]
    schedulers: dict[str, Registered[SchedulerKind]]
    backends: dict[str, Registered[Backend]]
    processors: Sequence[Registered[Replacement]]
    executors: Sequence[Registered[Replacement]]

    @property
    def broken(self) -> list[Plugin]:
        """Plugins that were set aside."""
        return [plugin for plugin in self.plugins if plugin.error]

    def family(self, name: str) -> ModelFamily:
        """The family of that name or alias; a broken plugin of that name is fatal here."""
        if name in self.families:
            return self.families[name].value
        for registered in self.families.values():
            if name in registered.value.aliases:
                return registered.value
        for plugin in self.broken:
            if name in (plugin.name, plugin.distribution, plugin.distribution.split("-", 1)[-1]):
                raise PluginError(
                    f"the plugin {plugin.name!r} of {plugin.distribution} {plugin.version} is "
                    f"broken: {plugin.error}"
                )
        installed = ", ".join(sorted(self.families)) or "none"
        raise ConfigError(
            f"no installed model family is called {name!r}; installed: {installed}. Families come "
            "in packages of their own, for instance models-laya: install it beside system1-core"
        )

    def pullable(self, name: str) -> tuple[ModelFamily, list[str]]:
        """The family that `system1 pull NAME` means and its checkpoints: all, or the one named."""
        for registered in self.families.values():
            family = registered.value
            if name not in (family.name, *family.aliases) and any(
                checkpoint.name == name for checkpoint in family.checkpoints
            ):
                return family, [name]
        family = self.family(name)
        if not family.checkpoints:
            raise ConfigError(f"{family.name} has nothing to pull: it needs no download")
        return family, [checkpoint.name for checkpoint in family.checkpoints]

    def default_family(self) -> ModelFamily:
        """The installed family of the highest default rank."""
        ranked = [registered.value for registered in self.families.values()]
        top = max((family.default_rank for family in ranked), default=0)
        best = [family for family in ranked if family.default_rank == top]
        if top > 0 and len(best) == 1:
            return best[0]
        if not ranked:
            raise ConfigError("no model is installed: pip install models-mini")
        names = ", ".join(sorted(family.name for family in (best if top > 0 else ranked)))
        if top == 0:
            raise ConfigError(
                f"no installed model is served unless it is named; installed: {names}"
            )
        raise ConfigError(f"several models may be the default; name one: {names}")


def discover() -> Plugins:
    """Load every entry point of the group "system1".

    The environment variable SYSTEM1_DISABLED_PLUGINS (names of distributions or entry points,
    comma-separated) leaves some out. Raises PluginError when two register one name.
    """
    disabled = {name.strip() for name in os.environ.get(DISABLED_VARIABLE, "").split(",")}
    found = [
        point
        for point in sorted(entry_points(group=GROUP), key=lambda point: point.name)
        if point.name not in disabled and _distribution(point)[0] not in disabled
    ]
    return collect([(*_distribution(point), point.name, point.load) for point in found])


def collect(sources: Iterable[tuple[str, str, str, Callable[[], object]]]) -> Plugins:
    """Plugins from (distribution, version, entry point name, loader) tuples."""
    plugins: list[Plugin] = []
    registered: dict[str, list[Registered[Any]]] = {hook: [] for hook in _HOOKS}
    for distribution, version, name, load in sources:
        try:
            values = _registrations(load(), name)
        # A plugin can fail in any way (a missing library, a syntax error): never take core down.
        except (Exception, SystemExit) as error:
            reason = f"{type(error).__name__}: {error}"
            plugins.append(Plugin(name, distribution, version, error=reason))
            continue
        plugins.append(Plugin(name, distribution, version))
        for hook, items in values.items():
            registered[hook] += [Registered(item, distribution) for item in items]
    return Plugins(
        plugins=plugins,
        families=_by_name("model family", registered["system1_register_models"]),
        schedulers=_by_name("scheduler", registered["system1_register_schedulers"]),
        backends=_by_name("backend", registered["system1_register_backends"]),
        processors=registered["system1_register_processors"],
        executors=registered["system1_register_executors"],
    )


_HOOKS: dict[str, type] = {
    "system1_register_models": ModelFamily,
    "system1_register_processors": Replacement,
    "system1_register_executors": Replacement,
    "system1_register_schedulers": SchedulerKind,
    "system1_register_backends": Backend,
}


def _registrations(plugin: object, name: str) -> dict[str, list[Any]]:
    """What one plugin registers; raises on an unknown hook, a wrong signature or a wrong type."""
    manager = pluggy.PluginManager("system1")
    manager.add_hookspecs(hookspecs)
    manager.register(plugin, name)
    manager.check_pending()
    values: dict[str, list[Any]] = {}
    for hook, kind in _HOOKS.items():
        items = [item for result in getattr(manager.hook, hook)() for item in result]
        for item in items:
            if not isinstance(item, kind):
                raise TypeError(f"{hook} gave {type(item).__name__}, expected {kind.__name__}")
        values[hook] = items
    return values


def _distribution(point: EntryPoint) -> tuple[str, str]:
    return (point.dist.name, point.dist.version) if point.dist else ("unknown", "?")


def _by_name(kind: str, items: Iterable[Registered[Any]]) -> dict[str, Registered[Any]]:
    named: dict[str, Registered[Any]] = {}
    for item in items:
        name = item.value.name
        if name in named:
            raise PluginError(
                f"{named[name].distribution} and {item.distribution} both register the {kind} "
                f"{name!r}: uninstall one, or set {DISABLED_VARIABLE} to leave one out"
            )
        named[name] = item
    return named


def replacement(
    items: Sequence[Registered[Replacement]], family: str, backend: str
) -> Callable[[Load], Any] | None:
    """The loader that replaces a family's own on a backend, or None.

    Raises PluginError when two of one priority apply.
    """
    fitting = [
        item
        for item in items
        if item.value.family == family and item.value.backend in (None, backend)
    ]
    fitting.sort(key=lambda item: item.value.priority, reverse=True)
    if len(fitting) > 1 and fitting[0].value.priority == fitting[1].value.priority:
        first, second = fitting[:2]
        raise PluginError(
            f"{first.distribution} and {second.distribution} both replace a part of {family!r} "
            f"with priority {first.value.priority}: uninstall one"
        )
    return fitting[0].value.load if fitting else None
