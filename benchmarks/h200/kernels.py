"""Time every kernel against the torch operations it replaces, at LAYA's and Qwen3.5's shapes.

Both sides run in CUDA graphs over the same inputs, 20 calls in a row, so the inputs of short
batches come from the L2 cache, as they do behind the layer's matrix product. Run on a CUDA
device: `python benchmarks/h200/kernels.py OUT.json [--quick] [--only quantised]`.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from timing import copy_bandwidth, facts, matrix_rate, median, time_graph

from system1_cuda.build import load_kernels
from system1_cuda.offered import OPS
from system1_torch.ops import (
    delta_inputs,
    gated_rms_norm,
    geglu,
    layer_norm,
    local_attention,
    norm_rope,
    rms_norm,
    rotary,
    silu_mul,
)
from system1_torch.ops.quantised_linear import QuantisedRows
from system1_torch.packed_tree import make_packed_tree
from system1_torch.testing import cu_seqlens_of, relative_error

# LAYA English: 16 heads of 64, MLP 2,624 wide, window 64 on either side.
WIDTH, HEADS, HEAD_WIDTH, MLP_WIDTH, WINDOW = 1024, 16, 64, 2624, 64
LENGTHS = (1, 48, 64, 128, 176, 256, 512, 1024, 2048, 4096, 8192)
BATCHES = ((8, 48), (8, 176), (8, 512), (64, 48), (64, 176), (64, 512))
DTYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16, "float32": torch.float32}


@dataclass
class Case:
    """One kernel on one batch: ours, what it replaces, and what the least work is."""

    name: str
    lengths: list[int]
    ours: Callable[[], Any]
    replaced: dict[str, Callable[[], Any]]
    num_bytes: float = 0.0
    num_flops: float = 0.0
    kernel: Callable[[], Any] | None = None  # ours without the choice of something faster


def randn(*shape: int, dtype: torch.dtype) -> torch.Tensor:
    return torch.randn(*shape, device="cuda", dtype=dtype)


def row_cases(lengths: list[int], dtype: torch.dtype) -> Iterator[Case]:
    """Norms and gated products; the residual is float32, as LAYA keeps it."""
    tokens, size = sum(lengths), dtype.itemsize
    x, residual = randn(tokens, WIDTH, dtype=dtype), randn(tokens, WIDTH, dtype=torch.float32)
    weight = randn(WIDTH, dtype=torch.float32)
    args = (x, residual, weight, None, 1e-5)
    yield Case(
        "residual_layer_norm", lengths,
        lambda: OPS["residual_layer_norm"](*args),
        {"torch": lambda: layer_norm.residual_layer_norm(*args)},
        num_bytes=tokens * WIDTH * (2 * size + 8),
    )  # fmt: skip
    yield Case(
        "layer_norm", lengths,
        lambda: OPS["layer_norm"](residual, weight, None, 1e-5),
        {"torch": lambda: layer_norm.layer_norm(residual, weight, None, 1e-5)},
        num_bytes=tokens * WIDTH * 8,
    )  # fmt: skip
    wide = randn(tokens, 2 * MLP_WIDTH, dtype=dtype)
    yield Case(
        "geglu", lengths,
        lambda: OPS["geglu"](wide),
        {
            "torch": lambda: geglu.geglu(wide),
            "torch, rounded between": lambda: torch.nn.functional.gelu(wide[:, :MLP_WIDTH])
            * wide[:, MLP_WIDTH:],
        },
        num_bytes=tokens * MLP_WIDTH * 3 * size,
    )  # fmt: skip
    projected = randn(tokens, 3 * HEADS, HEAD_WIDTH, dtype=dtype)[:, : 2 * HEADS]
    angles = torch.rand(tokens, HEAD_WIDTH // 2, device="cuda") * 100
    cos, sin = angles.cos(), angles.sin()
    yield Case(
        "rotary", lengths,
        lambda: OPS["rotary"](projected, cos, sin),
        {"torch": lambda: rotary.rotary(projected, cos, sin)},
        num_bytes=tokens * HEADS * HEAD_WIDTH * 4 * size + tokens * HEAD_WIDTH * 4,
    )  # fmt: skip


def qwen_cases(lengths: list[int], dtype: torch.dtype) -> Iterator[Case]:
    """The norms and the gate of Qwen3.5 27B: hidden 5,120, MLP 17,408, 48 value heads of 128."""
    tokens, size, hidden, mlp = sum(lengths), dtype.itemsize, 5120, 17_408
    x, residual = randn(2, tokens, hidden, dtype=dtype)
    weight = randn(hidden, dtype=dtype)
    one_plus = weight + 1
    yield Case(
        "add_rms_norm", lengths,
        lambda: OPS["add_rms_norm"](x, residual, weight, 1e-6, 1.0),
        {
            "torch": lambda: rms_norm.add_rms_norm(x, residual, weight, 1e-6, 1.0),
            "torch add and F.rms_norm": lambda: torch.nn.functional.rms_norm(
                x + residual, (hidden,), one_plus, 1e-6
            ),
        },
        num_bytes=tokens * hidden * 4 * size,
    )  # fmt: skip
    gate_up = randn(tokens, 2 * mlp, dtype=dtype)
    yield Case(
        "silu_mul", lengths,
        lambda: OPS["silu_mul"](gate_up),
        {"torch": lambda: silu_mul.silu_mul(gate_up)},
        num_bytes=tokens * mlp * 3 * size,
    )  # fmt: skip
    heads, gate = randn(2, tokens, 48, 128, dtype=dtype)
    head_weight = randn(128, dtype=dtype)
    yield Case(
        "gated_rms_norm", lengths,
        lambda: OPS["gated_rms_norm"](heads, gate, head_weight, 1e-6),
        {"torch": lambda: gated_rms_norm.gated_rms_norm(heads, gate, head_weight, 1e-6)},
        num_bytes=tokens * 48 * 128 * 3 * size,
    )  # fmt: skip


def fp8_cases(lengths: list[int], dtype: torch.dtype) -> Iterator[Case]:
    """What ends in FP8 at Qwen3.5 27B's shapes, against the same in two kernels."""
    tokens, hidden, mlp = sum(lengths), 5120, 17_408
    x, residual = randn(2, tokens, hidden, dtype=dtype)
    gate_up = randn(tokens, 2 * mlp, dtype=dtype)
    heads, gate = randn(2, tokens, 48, 128, dtype=dtype)
    weight, head_weight = randn(hidden, dtype=dtype), randn(128, dtype=dtype)
    norm = (x, residual, weight, 1e-6, 1.0)
    # Inputs, and bytes of a token.
    cases: dict[str, tuple[tuple[Any, ...], int]] = {
        "add_rms_norm": (norm, hidden * 7),
        "silu_mul": ((gate_up,), mlp * 5),
        "gated_rms_norm": ((heads, gate, head_weight, 1e-6), 48 * 128 * 5),
    }

    def apart(name: str, *inputs: Any) -> Any:
        rows, *rest = as_tuple(OPS[name](*inputs))
        values, scales = torch.ops.system1.quantise_rows.default(rows.flatten(1))
        return (QuantisedRows(values, scales, dtype), *rest)

    for name, (inputs, num_bytes) in cases.items():
        yield Case(
            f"{name}_quantised", lengths,
            lambda name=name, inputs=inputs: OPS[f"{name}_quantised"](*inputs),
            {"two kernels": lambda name=name, inputs=inputs: apart(name, *inputs)},
            num_bytes=tokens * num_bytes,
        )  # fmt: skip
    yield Case(
        "add_rms_norm_quantised, both", lengths,
        lambda: OPS["add_rms_norm_quantised"](*norm, True),
        {"two kernels": lambda: apart("add_rms_norm", *norm)},
        num_bytes=tokens * hidden * 9,
    )  # fmt: skip


def delta_cases(lengths: list[int], dtype: torch.dtype) -> Iterator[Case]:
    """What comes before attention and the delta rule in Qwen3.5 27B, on views of projections."""
    tokens, size = sum(lengths), dtype.itemsize
    key_heads, value_heads, width = 16, 48, 128
    widths = [(2 * key_heads + value_heads) * width, value_heads * width, value_heads, value_heads]
    qkv, _, b, a = randn(tokens, sum(widths), dtype=dtype).split(widths, dim=1)
    conv_weight = randn(widths[0], 4, dtype=dtype)
    a_log, dt_bias = randn(2, value_heads, dtype=dtype)
    tree = make_packed_tree(lengths, [-1] * len(lengths), device="cuda")
    args = (qkv, b, a, conv_weight, a_log, dt_bias, tree, key_heads, width)
    yield Case(
        "delta_inputs", lengths,
        lambda: OPS["delta_inputs"](*args),
        {"torch": lambda: delta_inputs.delta_inputs(*args)},
        num_bytes=tokens * width * (2 * key_heads * (size + 4) + 2 * value_heads * size),
    )  # fmt: skip
    q = randn(tokens, 24, 512, dtype=dtype)[..., :256]
    weight, angles = randn(256, dtype=dtype), torch.rand(tokens, 64, device="cuda") * 100
    cos, sin = angles.cos().to(dtype), angles.sin().to(dtype)
    yield Case(
        "norm_rope", lengths,
        lambda: OPS["norm_rope"](q, weight, cos, sin, 1e-6),
        {"torch": lambda: norm_rope.norm_rope(q, weight, cos, sin, 1e-6)},
        num_bytes=tokens * (24 * 256 * 2 + 128) * size,
    )  # fmt: skip


def attention_cases(lengths: list[int], dtype: torch.dtype) -> Iterator[Case]:
    """Full and windowed attention against SDPA by sequence and torch's packed FlashAttention."""
    tokens, longest = sum(lengths), max(lengths)
    q, k = randn(tokens, 2 * HEADS, HEAD_WIDTH, dtype=dtype).chunk(2, dim=1)
    v = randn(tokens, 3 * HEADS, HEAD_WIDTH, dtype=dtype)[:, 2 * HEADS :]
    cu_seqlens = cu_seqlens_of(lengths, "cuda")
    bounds = cu_seqlens.tolist()

    def by_sequence(window: int | None) -> torch.Tensor:
        """The reference with the bounds known on the host, so that a graph can hold it."""
        out = torch.empty_like(q, memory_format=torch.contiguous_format)
        for begin, end in pairwise(bounds):
            rows = slice(begin, end)
            out[rows] = local_attention._attend(q[rows], k[rows], v[rows], window)
        return out

    def packed(window: int | None) -> torch.Tensor:
        return torch.ops.aten._flash_attention_forward(
            q, k, v, cu_seqlens, cu_seqlens, longest, longest, 0.0, False, False,
            window_size_left=window, window_size_right=window,
        )[0]  # fmt: skip

    for name, window in (("full_attention", None), ("window_attention", WINDOW)):
        replaced = {"torch SDPA by sequence": lambda window=window: by_sequence(window)}
        if dtype != torch.float32:
            replaced["torch packed FlashAttention"] = lambda window=window: packed(window)
        reach = -1 if window is None else window
        pairs = sum(n * (n if window is None else min(n, 2 * window + 1)) for n in lengths)
        yield Case(
            name, lengths,
            lambda window=window: OPS["local_attention"](q, k, v, cu_seqlens, longest, window),
            replaced,
            num_bytes=4 * q.numel() * dtype.itemsize,
            num_flops=4 * pairs * HEADS * HEAD_WIDTH,
            kernel=lambda reach=reach: torch.ops.system1.local_attention.default(
                q, k, v, cu_seqlens, longest, reach
            ),
        )  # fmt: skip


def measure(case: Case, dtype: str, bandwidth: float, rate: float) -> dict[str, Any]:
    """One row of the result; what cannot run says why."""
    calls = 20 if sum(case.lengths) <= 2048 else 5
    samples: dict[str, Any] = {"system1-cuda": time_graph(case.ours, calls)}
    errors = {}
    found = case.ours()
    if case.kernel is not None:
        samples["kernel alone"] = time_graph(case.kernel, calls)
    for name, run in case.replaced.items():
        try:
            samples[name] = time_graph(run, calls if len(case.lengths) < 16 else 3)
            pairs = zip(as_tuple(found), as_tuple(run()), strict=False)
            errors[name] = max(relative_error(a, b) for a, b in pairs)
        except (RuntimeError, TypeError) as error:
            torch.cuda.synchronize()
            samples[name] = str(error).splitlines()[0][:200]
    medians = {name: median(s) for name, s in samples.items() if isinstance(s, list)}
    others = [value for name, value in medians.items() if name in case.replaced]
    return {
        "kernel": case.name,
        "dtype": dtype,
        "tokens": sum(case.lengths),
        "sequences": len(case.lengths),
        "medians": medians,
        "speedup_over_best": min(others) / medians["system1-cuda"] if others else None,
        "floor": max(case.num_bytes / bandwidth, case.num_flops / rate) * 1e6,
        "relative_difference": errors,
        "samples": samples,
    }


def as_tuple(value: Any) -> tuple[Any, ...]:
    if isinstance(value, QuantisedRows):
        return (value.values.float() * value.scales[:, None],)
    if isinstance(value, tuple):
        return tuple(part for each in value for part in as_tuple(each))
    return (value,)


def batches(quick: bool) -> list[list[int]]:
    ragged = [48, 512, 1, 300, 77, 129, 64, 191]
    if quick:
        return [[48], [512], ragged]
    return [[n] for n in LENGTHS] + [[length] * count for count, length in BATCHES] + [ragged]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", default="", help="kernels whose name holds this")
    options = parser.parse_args()
    load_kernels()
    bandwidth, rate = copy_bandwidth(), matrix_rate()
    rows = []
    for dtype_name, dtype in DTYPES.items():
        for lengths in batches(options.quick or dtype_name == "float16"):
            makers = [row_cases, attention_cases]
            if dtype_name == "bfloat16":
                makers += [qwen_cases, fp8_cases, delta_cases]
            for make in makers:
                for case in make(lengths, dtype):
                    if options.only not in case.name:
                        continue
                    rows.append(measure(case, dtype_name, bandwidth, rate))
                    show(rows[-1])
    result = {"facts": facts(), "copy_bytes_per_s": bandwidth, "bf16_flops_per_s": rate}
    options.out.write_text(json.dumps({**result, "kernels": rows}) + "\n")


def show(row: dict[str, Any]) -> None:
    times = "  ".join(f"{name} {value:.2f}" for name, value in row["medians"].items())
    failed = [f"{n}: {s}" for n, s in row["samples"].items() if isinstance(s, str)]
    mark = "SLOWER" if (row["speedup_over_best"] or 9) < 0.98 else ""
    worst = max(row["relative_difference"].values(), default=0)
    print(
        f"{row['kernel']:28} {row['dtype']:8} T={row['tokens']:<6} N={row['sequences']:<3} "
        f"{times}  floor {row['floor']:.2f}  diff {worst:.1e} {mark} {' '.join(failed)}",
        flush=True,
    )


if __name__ == "__main__":
    main()
