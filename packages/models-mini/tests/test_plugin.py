"""The plugin is found, and costs nothing until it is served."""

import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from models_mini.plugin import EXAMPLE, system1_register_models
from system1_core import Load

HEAVY = ("onnxruntime", "tokenizers", "numpy", "torch")


def family():
    return next(iter(system1_register_models()))


def options(**changes):
    return {option.name: option.default for option in family().options} | changes


def test_entry_point_names_the_plugin():
    assert "models_mini.plugin" in [point.value for point in entry_points(group="system1")]


def test_plugin_imports_nothing_heavy():
    code = f"import sys, system1_core; before = set(sys.modules); import models_mini.plugin as p; \
p.system1_register_models(); print(set(sys.modules) - before & set({HEAVY!r}))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not set(HEAVY) & set(run.stdout.replace("'", " ").replace(",", " ").split())


def test_serving_never_imports_torch():
    code = "import sys, models_mini.processor, models_mini.executor; print('torch' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "False"


def test_description_says_what_it_is():
    assert family().description == "an embedded starter model: for real use take LAYA or larger"


def test_loaders_build_both_parts():
    load = Load(family="mini", options=options(threads=1))
    processor, executor = family().load_processor(load), family().load_executor(load)
    executor.warmup()
    assert executor.threads == 1
    executor.close()
    processor.close()


def test_example_asks_every_type():
    types = {question["type"] for question in EXAMPLE["questions"].values()}
    assert types == {"choice", "score", "noul"}


@pytest.mark.parametrize("text", ["two", "-1", "1.5", ""])
def test_options_refuse_what_is_not_a_whole_number(text):
    for option in family().options:
        with pytest.raises(ValueError, match="not a whole number"):
            option.parse(text)


def test_package_carries_model_card_and_licences():
    root = Path(__file__).parent.parent
    assert "for real use take LAYA or larger" in (root / "MODEL_CARD.md").read_text()
    assert "fine-tuned and quantised" in (root / "NOTICE").read_text()
    assert "Apache License" in (root / "LICENSE").read_text()
