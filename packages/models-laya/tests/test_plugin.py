"""What the plugin registers, and that asking for it costs no torch."""

import subprocess
import sys

import pytest

from models_laya.options import COMMON_OPTIONS, ROUTING_OPTIONS
from models_laya.plugin import EXAMPLE, system1_register_models
from system1_core.plugins import discover
from system1_core.wire.dialect import Body, RequestLimits
from system1_core.wire.systemone import SystemOne

FAMILIES = {family.name: family for family in system1_register_models()}


def test_the_entry_point_is_found():
    assert set(FAMILIES) <= set(discover().families)


def test_registering_imports_neither_torch_nor_tokenizers():
    code = (
        "import sys, models_laya.plugin as p; p.system1_register_models(); "
        "assert not {'torch', 'tokenizers'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_upstream_names_reach_their_checkpoint():
    assert {"english", "en"} <= set(FAMILIES["laya-english"].aliases)
    assert {"multilingual", "multi", "ml"} <= set(FAMILIES["laya-multilingual"].aliases)
    typed = {"typed-decisions", "typed", "typed_decisions", "decisions"}
    assert typed <= set(FAMILIES["laya-typed-decisions"].aliases)
    assert {"convaiinnovations/laya", "laya-english", "ml"} | typed <= set(FAMILIES["laya"].aliases)


def test_single_families_share_no_name():
    singles = [family for name, family in FAMILIES.items() if name != "laya"]
    names = [name for family in singles for name in (family.name, *family.aliases)]
    assert len(set(names)) == len(names)


def test_the_example_is_a_valid_request():
    assert len(SystemOne().parse(Body(json=EXAMPLE), RequestLimits()).questions) == 3


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("tournament_group", "1"),
        ("tournament_group", "101"),
        ("tournament_group", "x"),
        ("long_state", "drop"),
        ("strict", "maybe"),
        ("max_len", "0"),
        ("max_len", "8193"),
        ("threads", "0"),
        ("checkpoints", "english,french"),
        ("default_model", "jev"),
    ],
)
def test_a_bad_option_says_what_to_use(name, text):
    option = next(each for each in (*COMMON_OPTIONS, *ROUTING_OPTIONS) if each.name == name)
    with pytest.raises(ValueError, match="use"):
        option.parse(text)


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("tournament_group", "0", 0),
        ("tournament_group", "16", 16),
        ("long_state", "window", "window"),
        ("strict", "on", True),
        ("strict", "", False),
        ("max_len", "8192", 8192),
        ("checkpoints", "english, multilingual", ("english", "multilingual")),
    ],
)
def test_a_good_option_is_read(name, text, value):
    option = next(each for each in (*COMMON_OPTIONS, *ROUTING_OPTIONS) if each.name == name)
    assert option.parse(text) == value
