"""The plugin is found, and costs nothing until it is served."""

import subprocess
import sys
from importlib.metadata import entry_points

from conftest import family

from models_clm.plugin import EXAMPLE

HEAVY = ("torch", "numpy", "safetensors", "tokenizers", "httpx")


def test_entry_point_names_the_plugin():
    assert "models_clm.plugin" in [point.value for point in entry_points(group="system1")]


def test_plugin_imports_nothing_heavy():
    code = (
        "import sys, system1_core; before = set(sys.modules)\n"
        "import models_clm.plugin as p; p.system1_register_models()\n"
        f"print(sorted(set({HEAVY!r}) & (set(sys.modules) - before)))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


def test_family_answers_to_the_names_of_the_original():
    assert family().aliases == ("clm-latest", "clm-raw")


def test_example_asks_every_type():
    types = {question["type"] for question in EXAMPLE["questions"].values()}
    assert types == {"choice", "score", "noul"}


def test_pull_fetches_the_head_and_not_the_encoder():
    (checkpoint,) = family().checkpoints
    assert checkpoint.patterns == ("CLM_v0.1-8B.pt",)
