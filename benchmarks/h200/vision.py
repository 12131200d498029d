"""Time the vision tower of Qwen3.5-4B and the way of a picture to it, on random weights.

The tower runs eagerly and in a CUDA graph at the grids of three screenshots; beside it stand its
matrix products alone, its attention by each kernel there is, and the resize, decode, copy and
digest of a picture on the host. Run on a CUDA device: `python benchmarks/h200/vision.py OUT.json`.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from PIL import Image, ImageDraw, ImageFilter
from timing import facts, matrix_rate, median, time_eager, time_graph
from torch.nn import functional

from models_qwen3_5.config import VisionConfig
from models_qwen3_5.images import ImageSettings, PreparedImage, decode_image, prepare_image
from models_qwen3_5.ops import Ops
from models_qwen3_5.pixels import digest_of, pixels_of
from models_qwen3_5.vision import VisionTower
from models_qwen3_5.vision_graphs import VisionGraphs
from system1_cuda.build import load_kernels
from system1_cuda.image_attention import _cudnn, _flash
from system1_cuda.offered import OPS
from system1_torch.loading import make_empty
from system1_torch.ops.image_attention import by_equal_lengths
from system1_torch.ops.image_patches import image_patches
from system1_torch.testing import cu_seqlens_of, relative_error

CONFIG = VisionConfig(
    hidden_size=1024, intermediate_size=4096, depth=24, num_heads=16,
    num_position_embeddings=2304, out_hidden_size=2560, patch_size=16, temporal_patch_size=2,
    spatial_merge_size=2,
)  # fmt: skip
# OmniJev's budget shrinks 1920 x 1080 to 1024 x 576.
OMNIJEV = ImageSettings(max_pixels=602_112)
GROUPS = {
    "omnijev_1080p": [(36, 64)],
    "cuas1_1280x800": [(50, 80)],
    "whole_1080p": [(68, 120)],
    "omnijev_1080p_x4": [(36, 64)] * 4,
    "frames_x16": [(24, 24)] * 16,
}


def make_tower(dtype: torch.dtype) -> VisionTower:
    """Random weights of the usual scales, the same at each call."""
    tower = make_empty(lambda: VisionTower(CONFIG), device="cuda", dtype=dtype)
    generator = torch.Generator("cuda").manual_seed(0)
    with torch.no_grad():
        for name, weight in tower.state_dict().items():
            values = torch.randn(weight.shape, device="cuda", generator=generator)
            is_gain = "norm" in name and name.endswith("weight")
            weight.copy_(values * 0.02 + is_gain)
    return tower


def make_image(grid: tuple[int, int], seed: int) -> PreparedImage:
    generator = torch.Generator().manual_seed(seed)
    shape = grid[0] * grid[1], 768
    return PreparedImage(torch.randint(256, shape, dtype=torch.uint8, generator=generator), grid)


def wall(run: Callable[[], Any], times: int = 9) -> list[float]:
    """Milliseconds on the host's clock until the device is done."""
    run()
    samples = []
    for _ in range(times):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        run()
        torch.cuda.synchronize()
        samples.append((time.perf_counter() - begin) * 1e3)
    return samples


def per_call(samples: list[float]) -> float:
    return median(samples) / 1e3


def products(tower: VisionTower, patches: int) -> Callable[[], None]:
    """All matrix products of one pass, weights in their order, nothing else."""
    inputs = {
        width: torch.randn(patches, width, device="cuda", dtype=torch.bfloat16)
        for width in (1024, 1536, 4096)
    }
    merged = torch.randn(patches // 4, 4096, device="cuda", dtype=torch.bfloat16)
    embed, merger = tower.patch_embed["proj"], tower.merger
    layers = [layer for b in tower.blocks for layer in (*b.attn.values(), *b.mlp.values())]

    def run() -> None:
        functional.linear(inputs[1536], embed.weight.flatten(1), embed.bias)
        for layer in layers:
            functional.linear(inputs[layer.weight.shape[1]], layer.weight, layer.bias)
        for layer in (merger.linear_fc1, merger.linear_fc2):
            functional.linear(merged, layer.weight, layer.bias)

    return run


def attention_rows(lengths: list[int]) -> dict[str, float | str]:
    """Milliseconds of all layers' attention by each kernel."""
    total = sum(lengths)
    turned = torch.randn(total, 32, 64, device="cuda", dtype=torch.bfloat16)
    q, k = turned.split(16, dim=1)
    v = torch.randn(total, 48, 64, device="cuda", dtype=torch.bfloat16)[:, 32:]
    bounds = cu_seqlens_of(lengths, "cuda")
    longest = max(lengths)
    kernels = {
        "cudnn": lambda: by_equal_lengths(_cudnn, q, k, v, lengths),
        "flash": lambda: by_equal_lengths(_flash, q, k, v, lengths),
        "torch_default": lambda: by_equal_lengths(
            functional.scaled_dot_product_attention, q, k, v, lengths
        ),
        "system1_local": lambda: torch.ops.system1.local_attention.default(
            q, k, v, bounds, longest, -1
        ),
    }
    found: dict[str, float | str] = {}
    for name, run in kernels.items():
        try:
            found[name] = per_call(time_graph(run, 3)) * CONFIG.depth
        except RuntimeError as error:
            torch.cuda.synchronize()
            found[name] = str(error).splitlines()[0][:160]
    return found


def tower_rows(name: str, tower: VisionTower, exact: VisionTower, rate: float) -> dict[str, Any]:
    grids = GROUPS[name]
    images = [make_image(grid, seed) for seed, grid in enumerate(grids)]
    lengths = [rows * columns for rows, columns in grids]
    ops = Ops(**{key: op for key, op in OPS.items() if key in Ops.__dataclass_fields__})
    graphs = VisionGraphs(tower, ops)
    begin = time.perf_counter()
    eager = torch.cat(graphs.features(images))
    torch.cuda.synchronize()
    first_ms = (time.perf_counter() - begin) * 1e3
    eager_samples = wall(lambda: graphs.features(images))
    begin = time.perf_counter()
    assert graphs.capture_next(), "nothing was captured"
    torch.cuda.synchronize()
    capture_ms = (time.perf_counter() - begin) * 1e3
    replayed = torch.cat(graphs.features(images))
    patches = tower.patches(images, ops)
    tables = tower.tables(grids)

    def features(ops: Ops) -> Callable[[], torch.Tensor]:
        return lambda: tower.features(patches, tables, grids, ops, is_recurring=True)

    plain = Ops()
    reference = exact.features(patches, exact.tables(grids), grids, plain)
    torch_rows = tower.features(patches, tables, grids, plain)
    total = sum(lengths)
    products_flops = total * 2 * (1536 * 1024 + CONFIG.depth * 12 * 1024**2 + 1024 * 4096)
    products_flops += total * 2 * 2560 * 1024
    attention_flops = CONFIG.depth * 4 * 1024 * sum(length**2 for length in lengths)
    row = {
        "patches": total,
        "first_eager_ms": first_ms,
        "eager_wall_ms": median(eager_samples),
        "capture_ms": capture_ms,
        "graph_wall_ms": median(wall(lambda: graphs.features(images))),
        "graph_device_ms": per_call(time_graph(features(ops), 1)),
        "graph_device_gelu_apart_ms": per_call(
            time_graph(features(replace(ops, linear_gelu=plain.linear_gelu)), 1)
        ),
        "graph_device_torch_ops_ms": per_call(time_graph(features(plain), 1)),
        "products_ms": per_call(time_graph(products(tower, total), 1)),
        "attention_ms": attention_rows(lengths),
        "floor_products_ms": products_flops / rate * 1e3,
        "floor_attention_ms": attention_flops / rate * 1e3,
        "graph_bytes": graphs._graphs.used_bytes,
        "graph_to_eager": relative_error(replayed, eager),
        "ours_to_float32": relative_error(replayed, reference),
        "torch_to_float32": relative_error(torch_rows, reference),
        "eager_wall_samples": eager_samples,
    }
    graphs.close()
    return row


def screenshot(width: int, height: int) -> Image.Image:
    """Flat panels, lines of text and a photograph's corner."""
    picture = Image.new("RGB", (width, height), (245, 246, 248))
    draw = ImageDraw.Draw(picture)
    for row in range(0, height, 24):
        shade = row * 5 % 200
        draw.rectangle((0, row, 220, row + 20), fill=(shade, 90, 140))
        draw.text((240, row), f"line {row}: the quick brown fox " * 6, fill=(30, 30, shade))
    noise = Image.effect_noise((width // 3, height // 3), 80).convert("RGB")
    picture.paste(noise.filter(ImageFilter.GaussianBlur(3)), (width // 2, height // 2))
    return picture


def picture_rows(width: int, height: int, settings: ImageSettings) -> dict[str, Any]:
    """Milliseconds of each step from a file to patches on the device."""
    picture = screenshot(width, height)
    files = {}
    for kind in ("PNG", "JPEG"):
        buffer = io.BytesIO()
        picture.save(buffer, kind)
        files[kind] = buffer.getvalue()
    on_device = replace(settings, on_device=True)
    ours, host = (prepare_image(picture, each) for each in (on_device, settings))
    assert ours.pixels is not None
    assert host.patches is not None
    pixels = ours.pixels.cuda()
    rows, columns = (side * 16 for side in ours.grid)
    ran = OPS["image_patches"](pixels, rows, columns, 16, 2)
    assert torch.equal(ran.cpu(), host.patches), "the device's patches differ from the host's"
    pinned = ours.pixels
    return {
        "size": [width, height],
        "grid": ours.grid,
        "bytes": {kind: len(data) for kind, data in files.items()},
        "decode_png_ms": median(wall(lambda: decode_image(files["PNG"]), 5)),
        "decode_jpeg_ms": median(wall(lambda: decode_image(files["JPEG"]), 5)),
        "pixels_to_pinned_ms": median(wall(lambda: pixels_of(picture, is_kept=True))),
        "digest_ms": median(wall(lambda: digest_of(b"", pinned))),
        "prepare_on_host_ms": median(wall(lambda: prepare_image(picture, settings))),
        "prepare_for_device_ms": median(wall(lambda: prepare_image(picture, on_device))),
        "host_resize_ms": median(
            wall(lambda: image_patches(pixels_of(picture), rows, columns, 16, 2))
        ),
        "copy_ms": per_call(time_eager(lambda: pinned.to("cuda", non_blocking=True))),
        "resize_ms": per_call(
            time_graph(lambda: OPS["image_patches"](pixels, rows, columns, 16, 2), 10)
        ),
    }


@torch.inference_mode()
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    options = parser.parse_args()
    began = time.perf_counter()
    load_kernels()
    loaded = time.perf_counter()
    rate = matrix_rate()
    torch.backends.cuda.matmul.allow_tf32 = False
    tower, exact = make_tower(torch.bfloat16), make_tower(torch.float32)
    result: dict[str, Any] = {
        "facts": facts() | {"cpus": os.cpu_count(), "unit": "milliseconds"},
        "bf16_flops_per_s": rate,
        "pictures": {
            "omnijev_1080p": picture_rows(1920, 1080, OMNIJEV),
            "cuas1_1280x800": picture_rows(1280, 800, ImageSettings()),
            "4k_shrunk": picture_rows(3840, 2160, OMNIJEV),
        },
        "tower": {},
    }
    show(result["pictures"])
    for name in GROUPS:
        row = tower_rows(name, tower, exact, rate)
        result["tower"][name] = row
        show({name: {key: value for key, value in row.items() if "samples" not in key}})
    result["seconds"] = {"build": loaded - began, "rest": time.perf_counter() - loaded}
    options.out.write_text(json.dumps(result) + "\n")
    show(result["seconds"])


def show(value: Any) -> None:
    print(json.dumps(value, default=str), flush=True)


if __name__ == "__main__":
    main()
