"""Every linear layer's product by torch and by the way chosen for it, and the sums of a model.

    python benchmarks/h200/gemm.py OUT.json [--sizes 27B 4B] [--rows 80 …] [--dtypes bfloat16 fp8]

Chooses with `system1_cuda`'s own tuner (weights in turn, so that they come from memory), then times
torch's way and the chosen one in CUDA graphs that hold each weight of a shape several times. In FP8
inputs are quantised beforehand and the gates' rows stay apart in bfloat16, as a server has them.
`sums` adds the products up over a model's layers, in milliseconds.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import torch
from benchmarks_random_weights.sizes import SIZES, config_json
from floor import text_shapes
from timing import facts, median, time_graph

from models_qwen3_5.config import TextConfig, read_config
from system1_cuda.build import load_kernels
from system1_cuda.gemm import Product, Way, default_way
from system1_cuda.gemm_choices import key_of
from system1_cuda.gemm_stream import prepare_stream
from system1_cuda.gemm_tune import choose_for
from system1_cuda.linear import make_products
from system1_torch.ops.quantised_linear import quantise_rows

ROWS = (80, 107, 128, 160, 256, 384, 512, 936, 1024, 2048)
# More than the second-level cache of 60 MB.
_COLD_BYTES = 180 << 20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--sizes", nargs="+", default=["27B", "4B"], choices=list(SIZES))
    parser.add_argument("--rows", nargs="+", type=int, default=list(ROWS))
    parser.add_argument("--dtypes", nargs="+", default=["bfloat16", "fp8"])
    options = parser.parse_args()
    load_kernels()
    prepare_stream(torch.device("cuda", 0))
    found: dict[str, Any] = {**facts(), "products": [], "sums": []}
    for size in options.sizes:
        for dtype in options.dtypes:
            run_model(size, dtype, options.rows, found)
            options.out.write_text(json.dumps(found))


@torch.inference_mode()
def run_model(size: str, dtype: str, row_counts: list[int], found: dict[str, Any]) -> None:
    """Add the products of one model in one dtype to `found`."""
    config = text_config(size)
    totals = {rows: [0.0, 0.0] for rows in row_counts}
    for (columns, depth), is_fp8, count in shapes(config, dtype):
        weights = make_weights(columns, depth, is_fp8)
        for rows in row_counts:
            products = make_products(weights, rows)
            choice = choose_for(products)
            times = [run_time(way, products) for way in (default_way(products[0]), choice.way)]
            for index, microseconds in enumerate(times):
                totals[rows][index] += count * microseconds / 1000
            row = {
                "model": size, "dtype": dtype, "shape": key_of(products[0])[1:4], "count": count,
                "torch": times[0], "chosen": times[1], "way": choice.way.kind,
                "settings": choice.way.settings,
                "weights_a_second": weights[0][0].nbytes / times[1] * 1e6,
            }  # fmt: skip
            found["products"].append(row)
            print(size, dtype, *row["shape"], *(round(t, 1) for t in times), row["way"], flush=True)
        del weights, products
    for rows, (plain, chosen) in totals.items():
        total = {
            "model": size,
            "dtype": dtype,
            "rows": rows,
            "torch_ms": plain,
            "chosen_ms": chosen,
        }
        found["sums"].append(total)
        print(total, flush=True)


def text_config(size: str) -> TextConfig:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "config.json").write_text(json.dumps(config_json(SIZES[size])))
        return read_config(Path(folder)).text


def shapes(config: TextConfig, dtype: str) -> list[tuple[tuple[int, int], bool, int]]:
    """(N, K), whether it is in FP8, and how many layers have it."""
    counts = Counter(text_shapes(config))
    if dtype != "fp8":
        return [(shape, False, count) for shape, count in counts.items()]
    heads, depth = config.linear_num_value_heads, config.hidden_size
    gates, others = 2 * heads, config.conv_channels + heads * config.linear_value_head_dim
    layers = counts.pop((others + gates, depth))
    apart = [((others, depth), True, layers), ((gates, depth), False, layers)]
    return [*((shape, True, count) for shape, count in counts.items()), *apart]


def make_weights(
    columns: int, depth: int, is_fp8: bool
) -> list[tuple[torch.Tensor, torch.Tensor | None]]:
    """As many weights of a shape as do not fit the cache together."""
    count = max(1, -(-_COLD_BYTES // (columns * depth * (1 if is_fp8 else 2))))
    weights = []
    for _ in range(min(count, 64)):
        weight = torch.empty(columns, depth, device="cuda", dtype=torch.bfloat16).normal_(0, 0.02)
        weights.append(quantise_rows(weight) if is_fp8 else (weight, None))
    return weights


def run_time(way: Way, products: list[Product]) -> float:
    """Median microseconds of one product."""

    def run() -> None:
        for product in products:
            way.run(product)

    return median(time_graph(partial(run), max(1, 8 // len(products)))) / len(products)


if __name__ == "__main__":
    main()
