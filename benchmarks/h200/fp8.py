"""What `--dtype fp8` takes while it loads, and what rows quantised at once save of a pass.

The decoder of Qwen3.5-27B with random weights is loaded as a server loads it. Then passes of each
length run in CUDA graphs as they are, and with norms and gates in 16 bits and each product
quantising its input; both must give the same bits. Run on a CUDA device:
`python benchmarks/h200/fp8.py OUT.json`; `--tiny --device cpu` only tries it out.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from benchmarks_random_weights.sizes import SIZES, config_json
from benchmarks_random_weights.weights import MARKER, random_weights
from timing import facts, median, time_graph
from torch.nn import functional

from models_qwen3_5.backbone import Backbone, Reads, SequencePrompt
from models_qwen3_5.checkpoint import Parts, load_backbone
from models_qwen3_5.ops import Ops, ops_of
from models_qwen3_5.passes import exact_shape
from models_qwen3_5.projection import Projection

LENGTHS = (80, 107, 160, 256, 512, 936, 2048)


def write_config(folder: Path, size: str) -> None:
    marker = {"prefix": "", "vision": False, "head": False, "seed": 0}
    (folder / "config.json").write_text(json.dumps(config_json(SIZES[size])))
    (folder / MARKER).write_text(json.dumps(marker))


def load(folder: Path, device: str, ops: Ops) -> tuple[Backbone, dict[str, Any]]:
    """The backbone, and what loading it took."""
    started = time.perf_counter()
    with random_weights(device):
        backbone = load_backbone(
            folder, Parts(vision=False, head=False),
            device=device, dtype=torch.bfloat16, ops=ops, quantised=True,
        )  # fmt: skip
    found: dict[str, Any] = {"seconds": time.perf_counter() - started}
    if device == "cuda":
        found["bytes"] = torch.cuda.memory_allocated()
        found["peak_bytes"] = torch.cuda.max_memory_allocated()
        found["peak_bytes_reserved"] = torch.cuda.max_memory_reserved()
    return backbone, found


@contextmanager
def quantised_by_products() -> Iterator[None]:
    """Norms and gates give 16 bits, as before; each product then quantises its own input."""
    own = Projection.is_quantised
    Projection.is_quantised = property(lambda self: False)  # type: ignore[assignment]
    try:
        yield
    finally:
        Projection.is_quantised = own  # type: ignore[method-assign]


@torch.inference_mode()
def measure(backbone: Backbone, tokens: int) -> dict[str, Any]:
    """Microseconds of the decoder for one sequence of other token ids each, read at its end."""
    ids = [7 * place % 199 for place in range(tokens)]
    prompt = SequencePrompt(ids, reads=Reads(hidden=(tokens - 1,)))
    plan = backbone.planner.plan([prompt])
    shape = exact_shape(plan, 1)
    table = backbone._table(plan, [prompt], [tokens - 1], shape).to(backbone.device)

    def run() -> torch.Tensor:
        # References must know the tree; a graph's must be known to the device only.
        known = plan if backbone.device.type == "cpu" else None
        inputs = backbone._inputs(table, shape, known)
        x = functional.embedding(inputs.token_ids, backbone.text.embed_tokens)
        return backbone.text(x, backbone._step(inputs), inputs.rows)

    row: dict[str, Any] = {"tokens": tokens}
    found = run()
    with quantised_by_products():
        row["same_bits"] = torch.equal(found, run())
    if backbone.device.type == "cuda":
        row["at_once"] = median(time_graph(run, 1))
        with quantised_by_products():
            row["by_products"] = median(time_graph(run, 1))
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--device", default="cuda")
    options = parser.parse_args()
    ops = Ops()
    if options.device == "cuda":
        from system1_cuda.plugin import CudaBackend

        ops = ops_of(CudaBackend())
    with tempfile.TemporaryDirectory() as folder:
        write_config(Path(folder), "tiny 27B" if options.tiny else "27B")
        backbone, loaded = load(Path(folder), options.device, ops)
    print(loaded, flush=True)
    rows = []
    for tokens in LENGTHS[:3] if options.tiny else LENGTHS:
        rows.append(measure(backbone, tokens))
        print(rows[-1], flush=True)
    known = facts() if options.device == "cuda" else {}
    options.out.write_text(json.dumps({"facts": known, "loading": loaded, "passes": rows}) + "\n")


if __name__ == "__main__":
    main()
