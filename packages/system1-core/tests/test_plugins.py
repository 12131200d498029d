"""Discovery: what is found, what is set aside, what clashes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable

import pytest
from fakes import FakePlugin, Zeros, family, plugins

import system1_core
from system1_core import Checkpoint, Replacement, hookimpl
from system1_core.config import ServeConfig
from system1_core.engines import build
from system1_core.errors import ConfigError, PluginError
from system1_core.metrics import Metrics
from system1_core.plugins import discover


def test_the_imported_core_is_this_one():
    assert system1_core.__version__.startswith("0.3.")
    assert hasattr(system1_core, "hookimpl")


def test_the_builtin_plugin_is_found_by_its_entry_point():
    found = discover()
    assert {"batch", "serial"} <= set(found.schedulers)
    assert "host" in found.backends


def broken() -> object:
    raise ImportError("no module named 'missing'")


def test_a_broken_plugin_is_set_aside():
    found = plugins(family(), more=[("models-bad", broken)])
    assert "zeros" in found.families
    assert [plugin.distribution for plugin in found.broken] == ["models-bad"]
    assert "missing" in found.broken[0].error


def test_a_broken_plugin_is_fatal_when_it_is_the_one_asked_for():
    found = plugins(family(), more=[("models-bad", broken)])
    with pytest.raises(PluginError, match="models-bad 1.0 is broken.*missing"):
        found.family("bad")


class Misspelt:
    @hookimpl
    def system1_register_model(self) -> Iterable[object]:
        return []


class WrongType:
    @hookimpl
    def system1_register_models(self) -> Iterable[object]:
        return ["coin"]


@pytest.mark.parametrize("plugin", [Misspelt, WrongType])
def test_a_plugin_that_registers_wrongly_is_set_aside(plugin):
    found = plugins(family(), more=[("models-odd", plugin)])
    assert [broken.distribution for broken in found.broken] == ["models-odd"]


def test_two_plugins_with_one_name_are_an_error_that_names_both():
    with pytest.raises(PluginError, match=r"fakes and other.*'zeros'"):
        plugins(family(), more=[("other", lambda: FakePlugin([family()]))])


def test_an_unknown_name_lists_what_is_installed():
    with pytest.raises(ConfigError, match=r"'nope'; installed: zeros"):
        plugins(family()).family("nope")


def test_a_family_is_found_by_its_alias():
    assert plugins(family(aliases=("nil",))).family("nil").name == "zeros"


def test_the_highest_default_rank_is_the_default():
    found = plugins(family("low", default_rank=1), family("high", default_rank=2))
    assert found.default_family().name == "high"


def test_several_of_one_rank_are_listed():
    with pytest.raises(ConfigError, match="name one: one, two"):
        plugins(family("two"), family("one")).default_family()


def test_a_rank_of_zero_is_never_the_default():
    with pytest.raises(ConfigError, match="unless it is named; installed: zeros"):
        plugins(family(default_rank=0)).default_family()


def test_pull_takes_families_aliases_and_checkpoints():
    pin = Checkpoint(name="base", repo="a/b", revision="0" * 40, patterns=["*"])
    found = plugins(family(checkpoints=[pin], aliases=("nil",)))
    for name in ("zeros", "nil", "base"):
        assert found.pullable(name)[1] == ["base"]
    with pytest.raises(ConfigError, match="no installed model family"):
        found.pullable("other")


def test_what_needs_no_download_says_so():
    with pytest.raises(ConfigError, match="nothing to pull"):
        plugins(family()).pullable("zeros")


class FasterExecutor:
    @hookimpl
    def system1_register_executors(self) -> Iterable[Replacement]:
        return [Replacement(family="zeros", backend="host", load=lambda load: Faster())]


class Faster(Zeros):
    pass


async def test_another_package_replaces_the_executor_of_a_family():
    found = plugins(family(), more=[("faster", FasterExecutor)])
    engines = build(ServeConfig(), found, Metrics())
    await engines.start()
    assert isinstance(engines.first.executor, Faster)
    await engines.close()


def test_two_replacements_of_one_priority_are_an_error_that_names_both():
    found = plugins(family(), more=[("faster", FasterExecutor), ("fastest", FasterExecutor)])
    with pytest.raises(PluginError, match="faster and fastest"):
        build(ServeConfig(), found, Metrics())


@pytest.mark.parametrize("module", ["torch", "onnxruntime", "huggingface_hub"])
def test_importing_core_and_listing_models_imports_nothing_heavy(module):
    code = (
        "import sys, system1_core.cli as c, system1_core.plugins as p, system1_core.listing as l;"
        f"l.print_models(p.discover()); assert {module!r} not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
