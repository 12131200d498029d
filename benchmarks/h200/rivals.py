"""What others take for the same prompts in the same run, in process, before HTTP and tokenisation.

    python benchmarks/h200/rivals.py OUT.json {torch,fla,flide} FOLDER --lengths 80 107 …

`torch` and `fla`: Transformers' Qwen3_5TextModel in bfloat16, eager, one sequence at a time,
without and with flash-linear-attention, to the last token's row on the host. `flide`: flide
0.1.4's engine with its CUDA graphs, its own packed path and FP8 (`--dtype fp8`), to a head's
number on the host. Every rival gets the weights that our plugin draws for FOLDER, made on the
device: flide builds its model without reading a checkpoint (its `loader="none"`), and its
function that fills in zeros is replaced by ours. Graphs and kernels of each length are made
before it is measured.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from benchmarks_random_weights.weights import MARKER, random_tensor

REPEATS = 5
Ask = Callable[[list[int]], Any]


def text_config(folder: Path) -> dict[str, Any]:
    """The text part of a config, as a checkpoint of the decoder alone has it."""
    values = json.loads((folder / "config.json").read_text("utf-8"))
    tied = values["tie_word_embeddings"]
    return values["text_config"] | {
        "architectures": ["Qwen3_5ForCausalLM"],
        "tie_word_embeddings": tied,
    }


def seed_of(folder: Path) -> int:
    return int(json.loads((folder / MARKER).read_text("utf-8"))["seed"])


@torch.no_grad()
def fill(model: Any, seed: int, device: str, lean: Any = None, fp8: Any = None) -> None:
    """Our random weights in a model with Transformers' names; for flide also its FP8 store."""
    for name, parameter in model.named_parameters():
        value = random_tensor(name, tuple(parameter.shape), seed, device)
        if lean is not None and lean(name):
            from flide.kernels.fp8 import quantize_rows

            fp8[name] = quantize_rows(value)
        else:
            parameter.copy_(value)


def make_transformers(folder: Path, device: str) -> Any:
    """Qwen3_5TextModel with our weights; rotary frequencies as its own constructor makes them."""
    from transformers import Qwen3_5TextConfig, Qwen3_5TextModel
    from transformers.initialization import no_init_weights
    from transformers.models.qwen3_5.modeling_qwen3_5 import Qwen3_5TextRotaryEmbedding

    config = Qwen3_5TextConfig(**text_config(folder), attn_implementation="sdpa")
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    try:
        with no_init_weights(), torch.device(device):
            model = Qwen3_5TextModel(config)
    finally:
        torch.set_default_dtype(before)
    model = model.to(torch.bfloat16).eval().requires_grad_(False)
    # On the CPU and in float32, whatever the surroundings made of them.
    model.rotary_emb = Qwen3_5TextRotaryEmbedding(config=config).to(device)
    fill(model, seed_of(folder), device)
    return model


def ask_transformers(folder: Path, device: str, *, fla: bool) -> Ask:
    if not fla:
        # As where it is not installed: the import fails and Transformers' fallbacks run.
        sys.modules["fla"] = None  # type: ignore[assignment]
    model = make_transformers(folder, device)

    def ask(token_ids: list[int]) -> Any:
        ids = torch.tensor([token_ids], device=device)
        return model(input_ids=ids, use_cache=False).last_hidden_state[0, -1].float().tolist()[0]

    return ask


def ask_flide(folder: Path, device: str, dtype: str) -> Ask:
    import flide.backbones.load as loading
    from flide.formats import register
    from flide.formats.base import Format, Plan, Read
    from flide.runtime.engine import Engine

    logging.basicConfig(level=logging.INFO, stream=sys.stdout)
    reads = (Read("score"),)
    init_buffers, seed = loading._init_buffers, seed_of(folder)

    @register("benchmark")
    class Benchmark(Format):
        """A head of one row on the last token: what Open-Jev's is."""

        def __init__(self, model_dir: str) -> None:
            self.model_dir = model_dir

        def load_heads(self, backbone: Any) -> dict[str, Any]:
            width = backbone.config.hidden_size
            weight = torch.randn(1, width, device=backbone.device) * width**-0.5
            return {"score": lambda hidden: hidden.float() @ weight.T}

    def blank(model: Any, place: Any = None, lean: Any = None, fp8: Any = None) -> None:
        fill(model, seed, str(device), lean, fp8)
        init_buffers(model)

    loading.blank = blank
    with tempfile.TemporaryDirectory() as temporary:
        Path(temporary, "config.json").write_text(json.dumps(text_config(folder)))
        options: dict[str, Any] = {"loader": "none", "cuda_graphs": True}
        if dtype == "fp8":
            options["quantize"] = "fp8"
        # Graphs are captured when a length first needs one: all of them would take a minute.
        place = "cuda:0" if device == "cuda" else device
        engine = Engine(
            temporary, format="benchmark", device=place, backbone_options=options, capture=False
        )

    def ask(token_ids: list[int]) -> Any:
        outputs, paths = engine.forward([Plan(token_ids[:-1], [token_ids[-1:]], reads)])
        ask.paths.add(paths[0])  # type: ignore[attr-defined]
        return outputs[0][0][0][0]

    ask.paths = set()  # type: ignore[attr-defined]
    return ask


def measure(ask: Ask, lengths: list[int], repeats: int) -> dict[int, list[float]]:
    """Milliseconds by length, host to host, behind two unmeasured calls; tokens are fresh."""
    generator = torch.Generator().manual_seed(0)

    def tokens(length: int) -> list[int]:
        return torch.randint(1000, 90_000, (length,), generator=generator).tolist()

    for length in lengths:
        ask(tokens(length))
    samples: dict[int, list[float]] = {}
    for length in lengths:
        ask(tokens(length))
        samples[length] = []
        for _ in range(repeats):
            token_ids = tokens(length)
            begin = time.perf_counter()
            ask(token_ids)
            samples[length].append((time.perf_counter() - begin) * 1e3)
    return samples


@torch.inference_mode()
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("rival", choices=["torch", "fla", "flide"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--lengths", nargs="+", type=int, required=True)
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--repeats", type=int, default=REPEATS)
    options = parser.parse_args()
    # `kernels` is a file here and a package that Transformers looks for.
    sys.path.pop(0)
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    begin = time.perf_counter()
    if options.rival == "flide":
        ask = ask_flide(options.folder, options.device, options.dtype)
    else:
        ask = ask_transformers(options.folder, options.device, fla=options.rival == "fla")
    ready_s = time.perf_counter() - begin
    print(f"{options.rival}: ready after {ready_s:.1f} s", flush=True)
    samples = measure(ask, sorted(set(options.lengths)), options.repeats)
    found = {
        "rival": options.rival,
        "dtype": options.dtype,
        "ready_s": ready_s,
        "paths": sorted(getattr(ask, "paths", ())),
        "has_flash_linear_attention": sys.modules.get("fla") is not None,
        "medians": {length: statistics.median(values) for length, values in samples.items()},
        "samples": samples,
    }
    options.out.write_text(json.dumps(found))
    print(f"{options.rival}: measured after {time.perf_counter() - begin:.1f} s", flush=True)


if __name__ == "__main__":
    main()
