"""The matrix products of one forward and nothing else, by token count: what no forward undercuts.

    python benchmarks/h200/floor.py OUT.json FOLDER --lengths 80 107 … [--dtype fp8] [--image H W]

`F.linear` with cuBLAS' defaults at the exact length, in one CUDA graph per length, each layer
with its own weights, so that they come from memory. Products are fused as the executor fuses them
(one for q, k, v and gates, one for gate and up), all layers on all tokens. FP8 is row-wise
`torch._scaled_mm` with inputs quantised beforehand. With `--image` the vision tower's products
and its attention (SDPA) run once in front, for a picture of H x W patches.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

from models_qwen3_5.config import ModelConfig, TextConfig, VisionConfig, read_config

FP8 = torch.float8_e4m3fn
REPLAYS, WARMUPS = 7, 2


def text_shapes(config: TextConfig) -> list[tuple[int, int]]:
    """(rows, columns) of every product of one forward, in order."""
    hidden, mlp = config.hidden_size, config.intermediate_size
    values = config.linear_num_value_heads * config.linear_value_head_dim
    queries = config.num_attention_heads * config.head_dim
    keys = config.num_key_value_heads * config.head_dim
    shapes = []
    for kind in config.layer_types:
        if kind == "full_attention":
            shapes += [(2 * queries + 2 * keys, hidden), (hidden, queries)]
        else:
            inputs = config.conv_channels + values + 2 * config.linear_num_value_heads
            shapes += [(inputs, hidden), (hidden, values)]
        shapes += [(2 * mlp, hidden), (hidden, mlp)]
    return shapes


def vision_shapes(config: VisionConfig) -> list[tuple[int, int]]:
    """(rows, columns) of the tower's products on patches; the merger's are apart."""
    width, mlp = config.hidden_size, config.intermediate_size
    block = [(3 * width, width), (width, width), (mlp, width), (width, mlp)]
    return [(width, config.patch_values), *(block * config.depth)]


class Products:
    """Weights, and inputs of the largest length; `run(tokens)` does every product once."""

    def __init__(self, shapes: list[tuple[int, int]], tokens: int, device: str, dtype: str):
        self.is_fp8 = dtype == "fp8"
        place = {"device": device, "dtype": torch.bfloat16}
        self.inputs = {
            columns: torch.randn(tokens, columns, **place) for columns in {c for _, c in shapes}
        }
        self.weights = []
        for rows, columns in shapes:
            weight = torch.empty(rows, columns, **place).normal_(0, 0.02)
            # Rows of a product in FP8 come in sixteens; the gates' stay in 16 bits in the product.
            self.weights.append(weight[: rows // 16 * 16].to(FP8) if self.is_fp8 else weight)
        if self.is_fp8:
            self.inputs = {columns: x.to(FP8) for columns, x in self.inputs.items()}
            self.scale = torch.ones(max(tokens, *(r for r, _ in shapes)), 1, device=device)

    def run(self, tokens: int) -> None:
        for weight in self.weights:
            x = self.inputs[weight.shape[1]][:tokens]
            if self.is_fp8:
                scales = self.scale[:tokens], self.scale[: weight.shape[0]].T
                torch._scaled_mm(x, weight.T, *scales, out_dtype=torch.bfloat16)
            else:
                F.linear(x, weight)

    def num_bytes(self) -> int:
        return sum(weight.numel() * weight.element_size() for weight in self.weights)

    def num_flops(self, tokens: int) -> int:
        return sum(2 * tokens * weight.numel() for weight in self.weights)


class Tower:
    """The products and the attention of one picture through the vision tower."""

    def __init__(self, config: VisionConfig, grid: tuple[int, int], device: str) -> None:
        self.patches = grid[0] * grid[1]
        self.blocks = Products(vision_shapes(config), self.patches, device, "bfloat16")
        merge = config.spatial_merge_size**2
        wide = config.hidden_size * merge
        shapes = [(wide, wide), (config.out_hidden_size, wide)]
        self.rows = self.patches // merge
        self.merger = Products(shapes, self.rows, device, "bfloat16")
        head = config.hidden_size // config.num_heads
        shape = (1, config.num_heads, self.patches, head)
        self.qkv = [torch.randn(shape, device=device, dtype=torch.bfloat16) for _ in range(3)]
        self.depth = config.depth

    def products(self) -> None:
        self.blocks.run(self.patches)
        self.merger.run(self.rows)

    def attention(self) -> None:
        for _ in range(self.depth):
            F.scaled_dot_product_attention(*self.qkv)


def milliseconds(run: Callable[[], Any], device: str) -> list[float]:
    """Replays of one graph on CUDA; plain calls by the host's clock elsewhere."""
    if device != "cuda":
        samples = []
        for _ in range(2):
            begin = time.perf_counter()
            run()
            samples.append((time.perf_counter() - begin) * 1e3)
        return samples
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        run()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    samples = []
    for number in range(WARMUPS + REPLAYS):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        if number >= WARMUPS:
            samples.append(begin.elapsed_time(end))
    return samples


def image_floor(config: ModelConfig, grid: tuple[int, int], device: str) -> dict[str, Any]:
    assert config.vision is not None
    tower = Tower(config.vision, grid, device)
    return {
        "grid": grid,
        "products_ms": statistics.median(milliseconds(tower.products, device)),
        "attention_ms": statistics.median(milliseconds(tower.attention, device)),
    }


@torch.inference_mode()
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--lengths", nargs="+", type=int, required=True)
    parser.add_argument("--dtype", default="bfloat16", choices=["bfloat16", "fp8"])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--image", nargs=2, type=int, help="rows and columns of patches")
    options = parser.parse_args()
    config = read_config(options.folder)
    lengths = sorted(set(options.lengths))
    device = options.device
    products = Products(text_shapes(config.text), max(lengths), device, options.dtype)
    samples = {n: milliseconds(partial(products.run, n), device) for n in lengths}
    found: dict[str, Any] = {
        "dtype": options.dtype,
        "weight_bytes": products.num_bytes(),
        "flops": {n: products.num_flops(n) for n in lengths},
        "medians": {n: statistics.median(values) for n, values in samples.items()},
        "samples": samples,
    }
    if options.image:
        found["image"] = image_floor(config, tuple(options.image), device)
    options.out.write_text(json.dumps(found))


if __name__ == "__main__":
    main()
