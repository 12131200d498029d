"""What the plugin registers, and that asking for it costs no torch."""

import subprocess
import sys
from importlib.metadata import entry_points

from models_omnijev.plugin import EXAMPLE, system1_register_models
from system1_core.wire.dialect import Body, RequestLimits
from system1_core.wire.systemone import SystemOne


def test_the_plugin_is_found_by_its_entry_point():
    (found,) = entry_points(group="system1", name="omnijev")
    assert found.value == "models_omnijev.plugin"


def test_listing_the_plugin_imports_no_torch():
    code = "import sys, models_omnijev.plugin as p; list(p.system1_register_models()); "
    code += "sys.exit(bool({'torch', 'PIL', 'tokenizers'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_family_says_what_it_is():
    (family,) = system1_register_models()
    assert family.aliases == ("omnijev-4b-v1.1", "tinnel123/OmniJev")
    assert family.accepts_images
    assert family.default_rank == 0
    assert [checkpoint.name for checkpoint in family.checkpoints] == ["omnijev-4b-v1.1", "base"]
    assert [option.name for option in family.options] == ["base"]
    assert family.export is not None


def test_the_example_is_a_valid_request_with_an_image():
    request = SystemOne().parse(Body(json=EXAMPLE), RequestLimits())
    assert [question.type for question in request.questions] == ["choice", "score", "noul"]
    assert len(request.images) == 1
