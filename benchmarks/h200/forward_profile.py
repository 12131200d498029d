"""Which kernels one pass of the decoder spends its time in, replayed as a server replays it.

    python benchmarks/h200/forward_profile.py OUT.json {4B,27B} --layers 8 --lengths 107 512 2048

The first layers of a model of true width with random weights, one prompt that reads four letters.
For each length: milliseconds of a pass as the host sees it (to the numbers) and of the graph alone,
then the device's microseconds and calls by kernel, from torch's profiler.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from benchmarks_random_weights.sizes import SIZES, config_json
from timing import facts
from torch.profiler import ProfilerActivity, profile

from models_qwen3_5.backbone import Backbone, Reads, SequencePrompt
from models_qwen3_5.checkpoint import Parts, make_models
from models_qwen3_5.config import read_config
from models_qwen3_5.graphs import LADDERS
from models_qwen3_5.ops import ops_of
from models_qwen3_5.passes import padded_shape
from system1_cuda.plugin import CudaBackend
from system1_torch.graphs import rung_of

PASSES, PROFILED = 30, 3
LETTERS = (33, 34, 35, 36)


def make_backbone(size: str, layers: int) -> Backbone:
    with tempfile.TemporaryDirectory() as folder:
        shape = replace(SIZES[size], layers=layers)
        (Path(folder) / "config.json").write_text(json.dumps(config_json(shape)))
        config = read_config(Path(folder))
    text, _ = make_models(config, Parts(vision=False), device="cuda", dtype=torch.bfloat16)
    for parameter in text.parameters():
        parameter.data.normal_(0, 0.02)
    return Backbone(config, text, ops=ops_of(CudaBackend()))


@torch.inference_mode()
def profile_length(backbone: Backbone, length: int) -> dict[str, Any]:
    prompts = [SequencePrompt([1] * length, reads=Reads(logits=(length - 1,), logit_ids=LETTERS))]
    rung = rung_of(length, LADDERS[1])
    assert rung is not None, f"{length} tokens have no graph"
    assert backbone.graphs is not None
    backbone.forward(prompts)
    shape = padded_shape(rung, 1, 1)
    backbone.graphs._pending = [(shape, False)]
    assert backbone.capture_next()
    samples = []
    for _ in range(PASSES):
        begin = time.perf_counter()
        backbone.forward(prompts)[0].logits.cpu()
        samples.append((time.perf_counter() - begin) * 1e3)
    given = backbone._example(shape, False)
    begin_event, end_event = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin_event.record()
    for _ in range(PASSES):
        backbone.graphs.replay(shape, given)
    end_event.record()
    end_event.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as found:
        for _ in range(PROFILED):
            backbone.forward(prompts)
        torch.cuda.synchronize()
    kernels = [
        {
            "kernel": event.key,
            "microseconds": event.self_device_time_total / PROFILED,
            "calls": event.count / PROFILED,
        }
        for event in found.key_averages()
        if event.self_device_time_total > 0
    ]
    return {
        "tokens": length,
        "rung": rung,
        "pass_ms": statistics.median(samples),
        "pass_samples": samples,
        "graph_ms": begin_event.elapsed_time(end_event) / PASSES,
        "kernels": sorted(kernels, key=lambda row: -row["microseconds"]),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("size", choices=list(SIZES))
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--lengths", nargs="+", type=int, default=[107, 512, 2048])
    options = parser.parse_args()
    backbone = make_backbone(options.size, options.layers)
    found: dict[str, Any] = {
        "facts": facts(), "size": options.size, "layers": options.layers, "lengths": []
    }  # fmt: skip
    for length in options.lengths:
        row = profile_length(backbone, length)
        found["lengths"].append(row)
        print(f"{length} tokens: pass {row['pass_ms']:.3f} ms, graph {row['graph_ms']:.3f} ms")
        for kernel in row["kernels"][:20]:
            print(
                f"{kernel['microseconds']:9.1f} us x{kernel['calls']:5.1f}  {kernel['kernel'][:90]}"
            )
    options.out.write_text(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
