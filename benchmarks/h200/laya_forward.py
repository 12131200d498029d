"""Time LAYA English on random weights: references, kernels, CUDA graphs, products alone.

The graphed path is the one an executor can take today: padded inputs on the host, one replay, and
the option logits back on the host. All head layers run on every token there, because the last one's
read rows have bounds on the host. Run on a CUDA device:
`python benchmarks/h200/laya_forward.py OUT.json`.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from timing import facts, median, time_eager, time_graph

from models_laya.config import EncoderConfig, LayaConfig, Temperatures
from models_laya.executor import pack
from models_laya.model import LayaModel, Packed
from models_laya.ops import LayaOps
from models_laya.tokens import LayaPrompt
from system1_cuda.build import load_kernels
from system1_cuda.offered import OPS
from system1_torch.graphs import GraphCache, make_ladder, rung_of
from system1_torch.testing import relative_error

LAYERS, WIDTH, HEADS, MLP_WIDTH, VOCABULARY = 28, 1024, 16, 2624, 50_368
BATCHES = {
    "1x48": [48], "1x64": [64], "1x176": [176], "1x512": [512], "8x48": [48] * 8,
    "8x176": [176] * 8, "64x48": [48] * 64, "64x176": [176] * 64,
}  # fmt: skip


def make_config() -> LayaConfig:
    encoder = EncoderConfig(
        hidden_size=WIDTH,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        intermediate_size=MLP_WIDTH,
        vocab_size=VOCABULARY,
        local_attention=128,
        norm_eps=1e-5,
        is_full=tuple(index % 3 == 0 for index in range(LAYERS)),
        full_theta=160_000.0,
        local_theta=10_000.0,
    )
    return LayaConfig(
        encoder=encoder, head_layers=2, num_actions=2, max_len=512, head_max_len=192,
        temperatures=Temperatures(by_bucket={}),
    )  # fmt: skip


def shape_of(name: str) -> tuple[int, ...]:
    """The shape of a tensor by its name in the checkpoint."""
    shapes = {
        "tok_embeddings.weight": (VOCABULARY, WIDTH),
        "Wqkv.weight": (3 * WIDTH, WIDTH),
        "attn.Wo.weight": (WIDTH, WIDTH),
        "mlp.Wi.weight": (2 * MLP_WIDTH, WIDTH),
        "mlp.Wo.weight": (WIDTH, MLP_WIDTH),
        "in_proj_weight": (3 * WIDTH, WIDTH),
        "in_proj_bias": (3 * WIDTH,),
        "out_proj.weight": (WIDTH, WIDTH),
        "linear1.weight": (4 * WIDTH, WIDTH),
        "linear1.bias": (4 * WIDTH,),
        "linear2.weight": (WIDTH, 4 * WIDTH),
        "type_emb.weight": (3, WIDTH),
        "scorer.1.weight": (WIDTH, WIDTH),
        "scorer.3.weight": (1, WIDTH),
        "scorer.3.bias": (1,),
        "act_head.0.weight": (256, WIDTH + 4),
        "act_head.0.bias": (256,),
        "act_head.2.weight": (2, 256),
        "act_head.2.bias": (2,),
    }
    return next((shape for end, shape in shapes.items() if name.endswith(end)), (WIDTH,))


def make_model(dtype: torch.dtype, ops: LayaOps, weights: dict[str, torch.Tensor]) -> LayaModel:
    """All models share the same float32 random weights, cast as each asks."""

    def take(name: str, wanted: torch.dtype | None) -> torch.Tensor:
        if name not in weights:
            shape = shape_of(name)
            scale = 1.0 if name.endswith("norm.weight") else shape[-1] ** -0.5
            weights[name] = torch.randn(shape, device="cuda") * scale
            if len(shape) == 1:
                weights[name] = weights[name] * 0.1 + (1.0 if "norm" in name else 0.0)
        return weights[name].to(wanted or torch.float16)

    return LayaModel(make_config(), take, ops, dtype)


def make_batch(lengths: list[int]) -> Packed:
    prompts = []
    for length in lengths:
        ids = torch.randint(0, VOCABULARY, (length,)).tolist()
        prompts.append(LayaPrompt(tuple(ids), batch_key="laya", markers=(4, 9), type_id=2))
    return pack(prompts, torch.device("cuda"))


class Shape(NamedTuple):
    """What a graph is keyed by."""

    tokens: int
    sequences: int
    reads: int
    max_seqlen: int


def run(
    model: LayaModel, tables: torch.Tensor, shape: Shape, inputs: Mapping[str, torch.Tensor]
) -> dict[str, Any]:
    """Option logits without a word to the host."""
    token_ids, positions, type_ids = inputs["tokens"]
    batch = Packed(
        token_ids=token_ids,
        positions=positions,
        type_ids=type_ids,
        cu_seqlens=inputs["cu_seqlens"],
        max_seqlen=shape.max_seqlen,
        read_rows=inputs["read_rows"],
        cu_reads=inputs["read_rows"],
    )
    hidden = model.read_everything(batch, tables)
    return {"logits": model.option_logits(hidden[batch.read_rows])}


def make_inputs(batch: Packed) -> tuple[Shape, dict[str, torch.Tensor]]:
    """The batch on the host, padded to a rung; rows beyond the last sequence belong to none."""
    tokens = rung_of(batch.token_ids.shape[0], make_ladder(32_768))
    rows = torch.stack([batch.token_ids, batch.positions, batch.type_ids]).cpu()
    padded = torch.zeros(3, tokens, dtype=torch.int64).pin_memory()
    padded[:, : rows.shape[1]] = rows
    shape = Shape(tokens, batch.cu_seqlens.shape[0] - 1, batch.read_rows.shape[0], batch.max_seqlen)
    inputs = {"tokens": padded, "cu_seqlens": batch.cu_seqlens, "read_rows": batch.read_rows}
    return shape, {name: tensor.cpu().pin_memory() for name, tensor in inputs.items()}


def time_engine(cache: GraphCache, shape: Shape, inputs: Mapping[str, torch.Tensor]) -> list[float]:
    """Microseconds by the host's clock from host inputs to logits on the host."""
    samples = []
    for _ in range(60):
        begin = time.perf_counter()
        cache(shape, inputs)["logits"].tolist()
        samples.append((time.perf_counter() - begin) * 1e6)
    return samples[10:]


def products_only(tokens: int) -> Any:
    """Every matrix product of the encoder and the head, weights of their own."""
    sizes = [
        (3 * WIDTH, WIDTH),
        (WIDTH, WIDTH),
        (2 * MLP_WIDTH, WIDTH),
        (WIDTH, MLP_WIDTH),
    ] * LAYERS
    sizes += [(WIDTH, WIDTH), (2 * WIDTH, WIDTH), (WIDTH, WIDTH)] * 2
    sizes += [(4 * WIDTH, WIDTH), (WIDTH, 4 * WIDTH)] * 2
    weights = [torch.randn(size, device="cuda", dtype=torch.bfloat16) for size in sizes]
    inputs = {
        w.shape[1]: torch.randn(tokens, w.shape[1], device="cuda").bfloat16() for w in weights
    }
    return lambda: [torch.nn.functional.linear(inputs[w.shape[1]], w) for w in weights]


@torch.inference_mode()
def main() -> None:
    load_kernels()
    weights: dict[str, torch.Tensor] = {}
    exact = make_model(torch.float32, LayaOps(), weights)
    plain = make_model(torch.bfloat16, LayaOps(), weights)
    fast = make_model(torch.bfloat16, LayaOps.of(OPS), weights)
    tables = fast.rotary_tables(512)
    cache = GraphCache(
        partial(run, fast, tables), device=torch.device("cuda"), budget_bytes=8 << 30
    )
    rows = []
    for name, lengths in BATCHES.items():
        batch = make_batch(lengths)
        expected = exact.read(batch)
        shape, inputs = make_inputs(batch)
        cache.capture(shape, inputs)
        logits = cache(shape, inputs)["logits"].clone()
        samples = {
            "references, eager": time_eager(lambda batch=batch: plain.read(batch)),
            "kernels, eager": time_eager(lambda batch=batch: fast.read(batch)),
            "kernels, graph": time_eager(partial(cache, shape, inputs)),
            "kernels, graph, by the host's clock": time_engine(cache, shape, inputs),
            "products alone, graph": time_graph(products_only(sum(lengths)), 1),
        }
        row = {
            "batch": name,
            "medians": {key: median(value) for key, value in samples.items()},
            "relative_error_of_read_rows": {
                "references bfloat16": relative_error(plain.read(batch), expected),
                "kernels bfloat16": relative_error(fast.read(batch), expected),
            },
            "relative_difference_of_logits_in_a_graph": relative_error(
                logits, fast.option_logits(fast.read(batch))
            ),
            "graph_bytes": cache.used_bytes,
            "samples": samples,
        }
        rows.append(row)
        show(row)
    Path(sys.argv[1]).write_text(json.dumps({"facts": facts(), "batches": rows}) + "\n")


def show(row: dict[str, Any]) -> None:
    times = "  ".join(f"{name} {value:.0f}" for name, value in row["medians"].items())
    errors = "  ".join(f"{k} {v:.4f}" for k, v in row["relative_error_of_read_rows"].items())
    difference = row["relative_difference_of_logits_in_a_graph"]
    print(f"{row['batch']:6} {times}  {errors}  graph {difference:.1e}", flush=True)


if __name__ == "__main__":
    main()
