"""What the plugin registers, and that asking for it costs no torch."""

import subprocess
import sys

import pytest
from conftest import FAMILIES

from models_openjev.plugin import EXAMPLE, OPTIONS
from system1_core.plugins import discover
from system1_core.wire.dialect import Body, RequestLimits
from system1_core.wire.systemone import SystemOne


def test_the_entry_point_is_found():
    assert set(FAMILIES) <= set(discover().families)


def test_registering_imports_neither_torch_nor_tokenizers():
    code = (
        "import sys, models_openjev.plugin as p; p.system1_register_models(); "
        "assert not {'torch', 'tokenizers', 'jinja2', 'numpy'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_example_is_a_valid_request():
    assert len(SystemOne().parse(Body(json=EXAMPLE), RequestLimits()).questions) == 3


@pytest.mark.parametrize(
    ("name", "repos"),
    [
        ("openjev", ["ZefanCai/Open-Jev-9B", "Qwen/Qwen3.5-9B"]),
        ("openjev-27b", ["ZefanCai/Open-Jev-27B-v1.1", "Qwen/Qwen3.8-27B"]),
    ],
)
def test_each_family_pulls_a_package_and_its_base(name, repos):
    package, base = FAMILIES[name].checkpoints
    assert [package.repo, base.repo] == repos
    assert package.subfolder == "package/checkpoint"
    assert base.name == f"{package.name}-base"


def test_pull_finds_the_checkpoints_by_their_own_names():
    family, names = discover().pullable("open-jev-27b-v1.1")
    assert (family.name, names) == ("openjev-27b", ["open-jev-27b-v1.1"])


@pytest.mark.parametrize(("name", "text"), [("unknown", "yes"), ("split", "words"), ("split", "")])
def test_a_bad_option_says_what_to_use(name, text):
    option = next(each for each in OPTIONS if each.name == name)
    with pytest.raises(ValueError, match="use"):
        option.parse(text)


def test_images_are_not_accepted():
    assert not any(family.accepts_images for family in FAMILIES.values())
