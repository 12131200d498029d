"""The families as an installed plugin."""

import base64
import io
import subprocess
import sys
from importlib.metadata import entry_points, files

import pytest
from conftest import BASE
from PIL import Image

from models_cuas1.plugin import WHITE_PNG, system1_register_models
from models_cuas1.reference import REVISION
from system1_core.config import family_options
from system1_core.errors import ConfigError


def families():
    return {family.name: family for family in system1_register_models()}


def test_the_plugin_is_found_by_its_entry_point():
    (found,) = entry_points(group="system1", name="cuas1")
    assert found.value == "models_cuas1.plugin"


def test_listing_the_plugin_imports_no_torch():
    code = "import sys, models_cuas1.plugin as p; list(p.system1_register_models()); "
    code += "sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_pins_are_those_of_the_release():
    adapters, base = families()["cuas1"].checkpoints
    assert (adapters.repo, adapters.revision) == ("cua-ai/cua-s1-4b-0.2", REVISION)
    assert adapters.sha256["text/adapter_model.safetensors"].startswith("9b59c5aed961")
    assert adapters.sha256["multimodal/adapter_model.safetensors"].startswith("38ecd5a9191a")
    assert (base.repo, base.revision[:8]) == ("Qwen/Qwen3.5-4B", "851bf6e8")
    assert base.sha256["tokenizer.json"].startswith("5f9e4d4901a9")


def test_a_single_family_pulls_its_own_adapter_only():
    for modality in ("text", "multimodal"):
        adapter, _ = families()[f"cuas1-{modality}"].checkpoints
        assert adapter.subfolder == modality
        assert list(adapter.sha256) == ["adapter_model.safetensors"]


def test_all_answer_choices_only_and_none_is_a_default():
    found = families()
    assert list(found) == ["cuas1", "cuas1-text", "cuas1-multimodal"]
    for family in found.values():
        assert family.question_types == ("choice",)
        assert family.default_rank == 0
        assert "cua-s1-4b-0.2" in family.aliases
    assert [family.accepts_images for family in found.values()] == [True, False, True]


def test_the_warm_up_picture_is_white_and_224_pixels_square():
    with Image.open(io.BytesIO(base64.b64decode(WHITE_PNG))) as picture:
        assert picture.size == (224, 224)
        assert picture.convert("L").getextrema() == (255, 255)


def test_options_are_checked_at_once():
    family = families()["cuas1"]
    found = family_options(family, [f"cuas1.base={BASE}", "cuas1.split=no-marks"])
    assert found == {"base": BASE, "split": "no-marks"}
    for text in ("cuas1.base=nowhere", "cuas1.split=other"):
        with pytest.raises(ConfigError):
            family_options(family, [text])


def test_the_notice_of_the_prompts_origin_is_installed():
    notices = [file for file in files("models-cuas1") or [] if file.name == "NOTICE"]
    assert notices
    assert "Permission is hereby granted" in notices[0].read_text()
