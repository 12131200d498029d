from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from benchmarks_random_weights.files import LAYOUTS, write_files
from benchmarks_random_weights.plugin import system1_register_models
from benchmarks_random_weights.weights import random_tensor, random_weights

from system1_core.family import Load
from system1_core.request import Question, Request
from system1_torch.plugin import TorchBackend
from system1_torch.safetensors_file import Safetensors

TEXT = [
    Question(id="c", type="choice", instructions="Next?", criteria={"go": None, "stay": "wait"}),
]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    torch.set_num_threads(1)
    made = {}
    for name in LAYOUTS:
        made[name] = tmp_path_factory.mktemp(name)
        write_files(name, made[name], tiny=True)
    return made


def load_of(name: str, folder: Path) -> tuple[Any, Load]:
    (family,) = (f for f in system1_register_models() if f.name == name)
    backend = TorchBackend(device="cpu", dtypes=("bfloat16",), default_dtype="bfloat16")
    options = {option.name: option.default for option in family.options}
    load = Load(family=name, folder=folder, backend=backend, options=options, dtype="bfloat16")
    return family, load


@pytest.mark.parametrize("name", ["openjev-27b-random", "cuas1-4b-random"])
def test_text_gets_an_answer_that_is_neither_even_nor_certain(
    name: str, folders: dict[str, Path]
) -> None:
    family, load = load_of(name, folders[name])
    processor, executor = family.load_processor(load), family.load_executor(load)
    prepared = processor.prepare(Request(state="A dialog.", questions=tuple(TEXT)))
    (answer,) = processor.finish(prepared.context, executor.execute(prepared.prompts)).answers
    chances = list(answer.probabilities.values())
    assert math.isclose(sum(chances), 1, abs_tol=1e-6)
    assert 0.001 < min(chances) < 0.4999


def test_every_family_loads_and_warms_up(folders: dict[str, Path]) -> None:
    for name, folder in folders.items():
        family, load = load_of(name, folder)
        family.load_processor(load)
        family.load_executor(load).warmup()


def test_a_tensor_depends_on_its_seed_and_its_name_without_the_prefix() -> None:
    first = random_tensor("layers.0.mlp.up_proj.weight", (8, 8), 1, "cpu")
    again = random_tensor("model.language_model.layers.0.mlp.up_proj.weight", (8, 8), 1, "cpu")
    assert torch.equal(first, again)
    assert not torch.equal(first, random_tensor("layers.0.mlp.up_proj.weight", (8, 8), 2, "cpu"))
    assert not torch.equal(first, random_tensor("layers.1.mlp.up_proj.weight", (8, 8), 1, "cpu"))


def test_decays_are_spread_over_many_lengths() -> None:
    steps = torch.nn.functional.softplus(random_tensor("dt_bias", (1000,), 0, "cpu").float())
    decays = random_tensor("A_log", (1000,), 0, "cpu").float().exp()
    kept = torch.exp(-steps * decays)
    assert kept.min() < 0.5
    assert kept.max() > 0.99


def test_other_folders_and_later_loads_read_files(folders: dict[str, Path], tmp_path: Path) -> None:
    from safetensors.torch import save_file

    save_file({"x": torch.ones(2)}, tmp_path / "model.safetensors")
    before = Safetensors.__dict__["open"]
    with random_weights("cpu"):
        assert list(Safetensors.open(tmp_path)) == ["x"]
        assert "embed_tokens.weight" in Safetensors.open(folders["openjev-27b-random"])
    assert Safetensors.__dict__["open"] is before


def test_the_tokenizer_is_that_of_the_released_models(folders: dict[str, Path]) -> None:
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(folders["omnijev-4b-random"] / "tokenizer.json"))
    assert tokenizer.get_vocab_size() == 248_079
    assert tokenizer.token_to_id("<|image_pad|>") == 248_056
    assert tokenizer.encode("Hello world\n\n 12").tokens == ["Hello", "Ġworld", "ĊĊ", "Ġ", "1", "2"]


def test_full_sizes_are_those_of_the_released_models(tmp_path: Path) -> None:
    write_files("openjev-27b-random", tmp_path)
    text = json.loads((tmp_path / "config.json").read_text())["text_config"]
    assert (text["hidden_size"], text["num_hidden_layers"]) == (5120, 64)


def test_listing_the_plugin_imports_no_torch() -> None:
    code = (
        "import sys; from benchmarks_random_weights.plugin import system1_register_models as f; "
        "f(); sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
