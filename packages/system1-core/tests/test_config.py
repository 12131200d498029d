"""Settings are checked once, with the remedy in the message."""

from __future__ import annotations

from pathlib import Path

import pytest
from fakes import family, plugins

from system1_core import Backend, Option
from system1_core.auth import load_keys
from system1_core.config import ModelChoice, ServeConfig, check_options, family_options
from system1_core.engines import build, export_model, select_backend
from system1_core.errors import CheckpointError, ConfigError
from system1_core.metrics import Metrics


def group(text: str) -> int:
    if not 2 <= int(text) <= 100:
        raise ValueError("expected 2 to 100")
    return int(text)


FAMILY = family(
    "laya", options=[Option(name="group", help="size", default=32, parse=group)], default_rank=0
)
SIBLING = family("laya-english", options=FAMILY.options)


def test_a_choice_is_a_name_or_a_name_and_a_folder(tmp_path):
    assert ModelChoice.parse("laya") == ModelChoice(name="laya")
    assert ModelChoice.parse(f"laya={tmp_path}").folder == tmp_path.resolve()


@pytest.mark.parametrize("text", ["", "=x", "laya="])
def test_a_malformed_choice_is_refused(text):
    with pytest.raises(ConfigError, match="NAME"):
        ModelChoice.parse(text)


def test_a_missing_folder_is_named():
    with pytest.raises(ConfigError, match="no folder '/does/not/exist'"):
        ModelChoice.parse("laya=/does/not/exist")


def test_a_bare_folder_says_how_to_name_it(tmp_path):
    with pytest.raises(ConfigError, match=f"NAME={tmp_path}"):
        ModelChoice.parse(str(tmp_path))


@pytest.mark.parametrize(
    "settings",
    [
        {"device": "tpu"},
        {"dtype": "int4"},
        {"profile": "x"},
        {"port": 70000},
        {"request_timeout_s": 0},
        {"root_path": "prefix"},
    ],
)
def test_a_wrong_setting_is_refused(settings):
    with pytest.raises(ConfigError, match="expected"):
        ServeConfig(**settings)


def test_options_are_parsed_and_defaults_filled_in():
    assert family_options(FAMILY, []) == {"group": 32}
    assert family_options(FAMILY, ["laya.group=16"]) == {"group": 16}


@pytest.mark.parametrize("key", ["long-state", "long_state"])
@pytest.mark.parametrize("declared", ["long-state", "long_state"])
def test_a_key_may_be_written_with_either_sign(key, declared):
    one = family("laya", options=[Option(name=declared, help="")])
    check_options([one], [f"laya.{key}=cut"])
    assert family_options(one, [f"laya.{key}=cut"]) == {declared: "cut"}


def test_an_option_reaches_the_single_checkpoint_siblings():
    assert family_options(SIBLING, ["laya.group=16"]) == {"group": 16}
    assert family_options(FAMILY, ["laya-english.group=16"]) == {"group": 32}


@pytest.mark.parametrize("text", ["group=16", "laya=16", "laya.group"])
def test_a_malformed_option_is_refused(text):
    with pytest.raises(ConfigError, match=r"NAME\.KEY=VALUE"):
        check_options([FAMILY], [text])


def test_an_option_nobody_declares_is_refused_with_those_there_are():
    with pytest.raises(ConfigError, match="it has: group"):
        check_options([FAMILY], ["laya.size=1"])
    with pytest.raises(ConfigError, match="'mini' is not served; served: laya"):
        check_options([FAMILY], ["mini.size=1"])


def test_a_value_its_option_refuses_is_told():
    with pytest.raises(ConfigError, match="expected 2 to 100"):
        family_options(FAMILY, ["laya.group=1"])


def test_keys_are_one_a_line(tmp_path):
    file = tmp_path / "keys"
    file.write_text("# ours\none\n\n  two  \n")
    keys = load_keys(file)
    assert keys.accept("Bearer one")
    assert keys.accept("Bearer two")
    assert not keys.accept("Bearer # ours")


@pytest.mark.parametrize("content", ["", "# only a comment\n"])
def test_a_key_file_without_a_key_is_refused(tmp_path, content):
    file = tmp_path / "keys"
    file.write_text(content)
    with pytest.raises(ConfigError, match="holds no key"):
        load_keys(file)


def test_a_missing_key_file_is_refused():
    with pytest.raises(ConfigError, match="--api-key-file"):
        load_keys(Path("/does/not/exist"))


class Gpu(Backend):
    name = "gpu"
    framework = "torch"
    device = "cuda"
    priority = 10
    dtypes = ("float32", "bfloat16")
    default_dtype = "bfloat16"

    def is_available(self) -> bool:
        return False


def test_an_unavailable_device_lists_what_is_installed():
    from system1_core import hookimpl

    class Plugin:
        @hookimpl
        def system1_register_backends(self):
            return [Gpu()]

    found = plugins(family(framework="torch"), more=[("gpu", Plugin)])
    with pytest.raises(ConfigError, match=r"--device cuda.*gpu \(cuda\)"):
        select_backend(found.family("zeros"), "cuda", found)


def test_a_model_that_only_runs_on_the_cpu_stays_there():
    found = plugins(family(devices=("cpu",)))
    assert select_backend(found.family("zeros"), "cuda", found).name == "host"


def test_a_model_named_twice_is_refused():
    config = ServeConfig(models=[ModelChoice(name="zeros"), ModelChoice(name="nil")])
    with pytest.raises(ConfigError, match="named twice"):
        build(config, plugins(family(aliases=("nil",))), Metrics())


def test_export_hands_an_empty_folder_to_the_family(tmp_path):
    seen = []
    found = plugins(family(export=lambda load, folder: seen.append((load.dtype, folder))))
    config = ServeConfig(models=[ModelChoice(name="zeros")])
    out = tmp_path / "new"
    assert export_model(config, found, out) == out
    assert seen == [("float32", out)]
    (out / "file").touch()
    with pytest.raises(ConfigError, match="not an empty folder"):
        export_model(config, found, out)


def test_a_family_without_an_adapter_cannot_be_exported(tmp_path):
    config = ServeConfig(models=[ModelChoice(name="zeros")])
    with pytest.raises(ConfigError, match="no adapter to merge"):
        export_model(config, plugins(family()), tmp_path)


def test_require_pinned_refuses_a_folder_that_no_pin_proves(tmp_path):
    config = ServeConfig(models=[ModelChoice(name="zeros", folder=tmp_path)], require_pinned=True)
    with pytest.raises((ConfigError, CheckpointError), match="pin"):
        build(config, plugins(family()), Metrics())
