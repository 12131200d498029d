"""Time the kernels over a whole tree against what they replace, at Qwen3.5's shapes.

Gated delta rule against flash-linear-attention, tree attention against torch's own, the normaliser
of the vocabulary against its reference. Every side runs in CUDA graphs where it can. On a device:
`python benchmarks/h200/tree_kernels.py OUT.json [--sweep | --carries]`; `--carries` times nothing
but every schedule of the delta rule.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from timing import facts, median, time_eager, time_graph

import system1_cuda.gated_tree_attention as attention
import system1_cuda.tree_delta_rule as rule
from system1_cuda.build import load_kernels
from system1_cuda.log_sum_exp import log_sum_exp
from system1_torch.ops import gated_tree_attention as attention_reference
from system1_torch.ops import log_sum_exp as sum_reference
from system1_torch.ops import tree_delta_rule as rule_reference
from system1_torch.packed_tree import make_packed_tree
from system1_torch.testing import relative_error

# Key heads and value heads of the delta rule, heads and key heads of attention.
SIZES = {"27B": (16, 48, 24, 4), "4B": (16, 32, 16, 4)}
LENGTHS = (1, 16, 48, 80, 107, 128, 256, 512, 936, 1536, 2312, 3399)
TREES = {
    "16x107": ([107] * 16, [-1] * 16),
    "2000+4x40": ([2000] + [40] * 4, [-1] + [0] * 4),
    "600+12x24": ([600] + [24] * 12, [-1] + [0] * 12),
    "150+8x40": ([150] + [40] * 8, [-1] + [0] * 8),
}
# Blocks for a head, chunks in flight, warpgroup products: of the delta rule's second kernel.
CARRIES = [(slices, stages, False) for slices in (2, 4) for stages in (1, 2)]
CARRIES += [(2, stages, True) for stages in (1, 3)]
CARRY_LENGTHS = (1, 64, 107, 128, 256, 512, 936, 2048, 3399)
BF16 = torch.bfloat16


def randn(*shape: int, dtype: torch.dtype = BF16) -> torch.Tensor:
    return torch.randn(*shape, device="cuda", dtype=dtype)


def rule_operands(count: int, heads: int, heads_v: int) -> list[torch.Tensor]:
    q, k = (F.normalize(randn(count, heads, 128, dtype=torch.float32), dim=-1) for _ in range(2))
    g = -randn(count, heads_v, dtype=torch.float32).abs() * 0.1
    v, beta = randn(count, heads_v, 128), randn(count, heads_v).sigmoid()
    return [(q * 128**-0.5).to(BF16), k.to(BF16), v, g, beta]


def fla_rule(operands: list[torch.Tensor], lengths: list[int]) -> Callable[[], Any]:
    from fla.ops.gated_delta_rule import chunk_gated_delta_rule

    q, k, v, g, beta = (x[None] for x in operands)
    ends = torch.tensor([0, *lengths], device="cuda").cumsum(0)
    packed = {"cu_seqlens": ends} if len(lengths) > 1 else {}
    q, k = q.to(BF16), k.to(BF16)
    return lambda: chunk_gated_delta_rule(q, k, v, g, beta, scale=1.0, **packed)


def measure(ours: Callable[[], Any], others: dict[str, Callable[[], Any]], calls: int) -> Any:
    row: dict[str, Any] = {"samples": {"system1-cuda": time_graph(ours, calls)}}
    for name, run in others.items():
        try:
            row["samples"][name] = time_graph(run, calls)
        except Exception:
            torch.cuda.synchronize()
            try:
                row["samples"][name + ", eager"] = time_eager(run)
            except Exception as error:
                row[name] = f"{type(error).__name__}: {error}"[:300]
    row["medians"] = {name: round(median(samples), 2) for name, samples in row["samples"].items()}
    return row


def rule_row(size: str, tree: tuple[list[int], list[int]]) -> dict[str, Any]:
    heads, heads_v, _, _ = SIZES[size]
    lengths, parents = tree
    operands = rule_operands(sum(lengths), heads, heads_v)
    packed = make_packed_tree(lengths, parents, device="cuda")
    others = {}
    if max(parents) < 0:
        others["fla"] = fla_rule(operands, lengths)
    row = measure(lambda: rule.tree_delta_rule(*operands, packed), others, 10)
    found = rule.tree_delta_rule(*operands, packed)
    expected = rule_reference.tree_delta_rule(*(x.float() for x in operands), packed)
    row["error"] = relative_error(found, expected)
    if others and "fla" in row["medians"]:
        row["fla_error"] = relative_error(others["fla"]()[0][0], expected)
    return row


def attention_row(size: str, tree: tuple[list[int], list[int]]) -> dict[str, Any]:
    _, _, heads, head_k = SIZES[size]
    lengths, parents = tree
    count = sum(lengths)
    q, gate = randn(count, heads, 2, 256).unbind(2)
    k, v = randn(count, 2, head_k, 256).unbind(1)
    packed = make_packed_tree(lengths, parents, device="cuda")
    others = {}
    if len(lengths) == 1:

        def torch_attention() -> torch.Tensor:
            parts = (x.transpose(0, 1)[None] for x in (q, k, v))
            found = F.scaled_dot_product_attention(*parts, is_causal=True, enable_gqa=True)
            return (found[0].transpose(0, 1) * torch.sigmoid(gate)).flatten(1)

        others["torch"] = torch_attention
    row = measure(lambda: attention.gated_tree_attention(q, k, v, gate, packed), others, 10)
    wide = [x.float() for x in (q, k, v, gate)]
    expected = attention_reference.gated_tree_attention(*wide, packed)
    row["error"] = relative_error(attention.gated_tree_attention(q, k, v, gate, packed), expected)
    last = torch.tensor([count - 1], device="cuda")
    read = measure(
        lambda: attention.gated_tree_attention(q[-1:], k, v, gate[-1:], packed, last), {}, 10
    )
    row["one_row"] = read["medians"]["system1-cuda"]
    return row


def sum_row(rows: int) -> dict[str, Any]:
    hidden, weight = randn(rows, 2560), randn(248_320, 2560) * 0.02
    others = {"reference": lambda: sum_reference.log_sum_exp(hidden, weight)}
    row = measure(lambda: log_sum_exp(hidden, weight), others, 2)
    expected = sum_reference.log_sum_exp(hidden.float(), weight.float())
    return row | {
        "floor": weight.numel() * 2 / 4.3e12 * 1e6,
        "error": relative_error(log_sum_exp(hidden, weight), expected),
    }


def sweep(asked: list[str]) -> list[dict[str, Any]]:
    """Every schedule at some shapes; what does not compile says so."""
    rows = []
    trees = {str(n): ([n], [-1]) for n in (107, 512, 3399)} | {"16x107": TREES["16x107"]}
    for size, (heads, heads_v, q_heads, k_heads) in SIZES.items():
        for name, (lengths, parents) in trees.items():
            count = sum(lengths)
            packed = make_packed_tree(lengths, parents, device="cuda")
            operands = rule_operands(count, heads, heads_v)
            for chosen in CARRIES if "tree_delta_rule" in asked else ():
                run = lambda: rule.tree_delta_rule(*operands, packed)  # noqa: B023, E731
                rows.append(swept(rule, rule._Schedule(*chosen), run, size, name))
            if "gated_tree_attention" not in asked:
                continue
            q, gate = randn(count, q_heads, 2, 256).unbind(2)
            k, v = randn(count, 2, k_heads, 256).unbind(1)
            for schedule in (
                (1, 16, 64, 4, 2), (1, 32, 64, 8, 2), (1, 64, 32, 4, 3), (1, 64, 64, 4, 2),
                (1, 64, 64, 8, 2), (2, 64, 32, 8, 2), (2, 64, 64, 8, 2), (2, 64, 64, 8, 1),
            ):  # fmt: skip
                chosen = attention._Schedule(*schedule)
                run = lambda: attention.gated_tree_attention(q, k, v, gate, packed)  # noqa: B023, E731
                rows.append(swept(attention, chosen, run, size, name))
    return rows


def carries() -> list[dict[str, Any]]:
    """Every schedule of the delta rule at every length and tree; the one chosen is marked."""
    rows = []
    trees = {str(n): ([n], [-1]) for n in CARRY_LENGTHS} | TREES
    for size, (heads, heads_v, _, _) in SIZES.items():
        for name, (lengths, parents) in trees.items():
            packed = make_packed_tree(lengths, parents, device="cuda")
            operands = rule_operands(sum(lengths), heads, heads_v)
            expected = rule_reference.tree_delta_rule(*(x.float() for x in operands), packed)
            segments, chunks = len(lengths), packed.chunks.shape[0]
            ours = rule._schedule(heads_v * segments, chunks, segments, 0)
            for chosen in map(rule._Schedule._make, CARRIES):
                run = lambda: rule.tree_delta_rule(*operands, packed)  # noqa: B023, E731
                row = swept(rule, chosen, run, size, name, expected)
                rows.append(row | {"is_chosen": chosen == ours})
    return rows


def swept(
    module: Any,
    chosen: Any,
    run: Callable[[], Any],
    size: str,
    name: str,
    expected: torch.Tensor | None = None,
) -> Any:
    row = {"kernel": module.__name__.split(".")[1], "size": size, "tree": name}
    kept = module._schedule
    module._schedule = lambda *_: chosen
    try:
        found: Any = round(median(time_graph(run, 10)), 2)
        if expected is not None:
            row["error"] = relative_error(run(), expected)
    except Exception as error:
        torch.cuda.synchronize()
        found = f"{type(error).__name__}: {error}"[:80]
    finally:
        module._schedule = kept
    row |= {"schedule": tuple(chosen), "microseconds": found}
    print(json.dumps(row), flush=True)
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--sweep", action="store_true")
    parser.add_argument("--carries", action="store_true")
    parser.add_argument("--kernels", default="tree_delta_rule,gated_tree_attention,log_sum_exp")
    options = parser.parse_args()
    load_kernels()
    if options.carries:
        options.out.write_text(json.dumps({"facts": facts(), "carries": carries()}) + "\n")
        return
    trees = {str(n): ([n], [-1]) for n in LENGTHS} | TREES
    kernels = []
    makers = {"tree_delta_rule": rule_row, "gated_tree_attention": attention_row}
    asked = options.kernels.split(",")
    for kernel, make in makers.items():
        for size in SIZES if kernel in asked else ():
            for name, tree in trees.items():
                kernels.append({"kernel": kernel, "size": size, "tree": name, **make(size, tree)})
                show(kernels[-1])
    for count in (1, 8, 64) if "log_sum_exp" in asked else ():
        kernels.append({"kernel": "log_sum_exp", "size": "4B", "tree": f"{count} rows"})
        kernels[-1] |= sum_row(count)
        show(kernels[-1])
    result: dict[str, Any] = {"facts": facts(), "kernels": kernels}
    options.out.write_text(json.dumps(result) + "\n")
    if options.sweep:
        result["sweep"] = sweep(asked)
        options.out.write_text(json.dumps(result) + "\n")


def show(row: dict[str, Any]) -> None:
    print(json.dumps({name: value for name, value in row.items() if name != "samples"}), flush=True)


if __name__ == "__main__":
    main()
