"""The family as an installed plugin."""

import subprocess
import sys
from importlib.metadata import entry_points

import pytest

from models_qwen3_5.plugin import EXAMPLE, QWEN3_5_4B, load_processor, system1_register_models
from system1_core.family import Load
from system1_core.testing import check_family, serve


def test_the_plugin_is_found_by_its_entry_point():
    (found,) = entry_points(group="system1", name="qwen3-5")
    assert found.value == "models_qwen3_5.plugin"


def test_listing_the_plugin_imports_no_torch():
    code = "import sys, models_qwen3_5.plugin as p; list(p.system1_register_models()); "
    code += "sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_family_is_never_a_default_and_reads_images():
    (family,) = system1_register_models()
    assert family.default_rank == 0
    assert family.accepts_images
    assert [checkpoint.name for checkpoint in family.checkpoints] == [QWEN3_5_4B.name]


@pytest.fixture
def one_thread(monkeypatch):
    """The executor would take every core, which others test on as well."""
    monkeypatch.setattr("models_qwen3_5.executor.set_cpu_threads", lambda: 1)


@pytest.mark.usefixtures("one_thread")
def test_the_family_keeps_what_the_protocol_asks_of_all(base):
    check_family(f"qwen3-5={base}", tolerance=1e-4)


@pytest.mark.usefixtures("one_thread")
def test_the_family_answers_over_http(base):
    with serve(f"qwen3-5={base}") as server:
        answers = server.ask({"model": "qwen3-5", **EXAMPLE})
    assert list(answers) == list(EXAMPLE["questions"])


def test_the_temperature_file_reaches_the_processor(base, tmp_path):
    file = tmp_path / "temperatures.json"
    file.write_text('{"noul": 2.5}')
    load = Load(family="qwen3-5", folder=base, options={"temperatures": str(file)})
    assert load_processor(load).temperatures.noul == 2.5
