"""How far our bfloat16 and Transformers' are from float32, at full size on the same random weights.

    python benchmarks/h200/parity.py OUT.json {4B,27B} [--prompts 64] [--longest 1024] [--fla]

One bfloat16 copy of the weights on the device serves three runs over the same prompts: our
executor (as served: kernels, packing, graphs), Transformers' Qwen3_5TextModel whose parameters
are views of ours, and Transformers' layers in float32, one layer upcast at a time with all
prompts' rows kept, TF32 off and torch's own delta rule. 27B reads Open-Jev's noul (softmax of 0
and a head's score), 4B the letters of Cua-S1 (softmax over four). The row is the mean absolute
difference from float32 of ours over that of Transformers; the issue allows 1.1. Without `--fla`
Transformers runs its own fallbacks, whose delta rule accumulates in float32: the harder rival.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from benchmarks_random_weights.files import write_files
from benchmarks_random_weights.plugin import system1_register_models
from bodies import OPTIONS, Exact, load_processor, parse
from openjev_27b import WORKLOAD
from rivals import text_config
from torch import Tensor

from serving import arguments, facts, say

NAMES = {"4B": "cuas1-4b-random", "27B": "openjev-27b-random"}
NOUL = {"type": "noul", "instructions": "Is it allowed?"}
CHOICE = {"type": "choice", "instructions": "Answer the last message.", "criteria": OPTIONS}
TARGETS = {"ratio_to_transformers": 1.1}
Read = Callable[[Tensor], list[float]]


def executor_of(name: str, folder: Path, device: str) -> Any:
    """The product's executor, loaded and warmed as a server does it."""
    from system1_core.family import Load
    from system1_torch.plugin import TorchBackend

    backend: Any = TorchBackend(device=device, dtypes=("bfloat16",), default_dtype="bfloat16")
    if device == "cuda":
        from system1_cuda.plugin import CudaBackend

        backend = CudaBackend()
    (family,) = (f for f in system1_register_models() if f.name == name)
    options = {option.name: option.default for option in family.options}
    load = Load(family=name, folder=folder, backend=backend, options=options, dtype="bfloat16")
    executor = family.load_executor(load)
    executor.warmup()
    return executor


def make_prompts(name: str, folder: Path, count: int, longest: int) -> list[Any]:
    """Prompts over the workload's lengths up to a limit, each with words of its own."""
    question = NOUL if name.startswith("openjev") else CHOICE
    processor = load_processor(name, folder)
    exact = Exact(processor, question)
    # Cua-S1's text alone takes more tokens than the workload's shortest prompts.
    workload = json.loads(WORKLOAD.read_text())["lengths"]
    lengths = [n for n in workload if exact.least <= n <= longest]
    bodies = [exact.body(lengths[i % len(lengths)], 7000 + i) for i in range(count)]
    return [processor.prepare(parse(json.loads(body))).prompts[0] for body in bodies]


def run_ours(executor: Any, prompts: Sequence[Any]) -> list[list[float]]:
    """Alone and in order, as one client asks."""
    outputs = [executor.execute([prompt])[0] for prompt in prompts]
    return [list(each) if isinstance(each, Sequence) else [each] for each in outputs]


def make_transformers(folder: Path, text: Any, device: str) -> Any:
    """Qwen3_5TextModel over the memory of our decoder."""
    from transformers import Qwen3_5TextConfig, Qwen3_5TextModel
    from transformers.models.qwen3_5.modeling_qwen3_5 import Qwen3_5TextRotaryEmbedding

    config = Qwen3_5TextConfig(**text_config(folder), attn_implementation="sdpa")
    with torch.device("meta"):
        model = Qwen3_5TextModel(config)
    views = {name: torch.nn.Parameter(view, requires_grad=False) for name, view in text.targets()}
    missing = model.load_state_dict(views, strict=True, assign=True)
    assert not missing.missing_keys, missing
    model.rotary_emb = Qwen3_5TextRotaryEmbedding(config=config).to(device)
    return model.eval()


def run_transformers(model: Any, prompts: Sequence[Any], read: Read) -> list[list[float]]:
    device = model.embed_tokens.weight.device
    outputs = []
    for prompt in prompts:
        ids = torch.tensor([list(prompt.token_ids)], device=device)
        outputs.append(read(model(input_ids=ids, use_cache=False).last_hidden_state[0, -1]))
    return outputs


def run_float32(model: Any, prompts: Sequence[Any], read: Read) -> list[list[float]]:
    """Transformers' layers one after the other, in float32 on upcast weights."""
    from copy import deepcopy

    device = model.embed_tokens.weight.device
    rows, shared = [], []
    for prompt in prompts:
        ids = torch.tensor([list(prompt.token_ids)], device=device)
        x = model.embed_tokens(ids).float()
        positions = torch.arange(x.shape[1], device=device)[None]
        rows.append(x)
        shared.append((positions, model.rotary_emb(x, positions.expand(3, 1, -1))))
    for layer in model.layers:
        exact = deepcopy(layer).float()
        for index, (positions, tables) in enumerate(shared):
            x = exact(
                rows[index], position_embeddings=tables, attention_mask=None,
                position_ids=positions, past_key_values=None,
            )  # fmt: skip
            rows[index] = x[0] if isinstance(x, tuple) else x
        del exact
    norm = deepcopy(model.norm).float()
    return [read(norm(x)[0, -1]) for x in rows]


def readers(executor: Any, name: str, prompts: Sequence[Any]) -> tuple[Any, Read, Any]:
    """Our decoder, what reads a hidden row as the family does, and outputs to probabilities."""
    if name.startswith("openjev"):
        text, head = executor.backbone.text, executor.head
        scale = 2.5343690298472983

        def score(hidden: Tensor) -> list[float]:
            return [float((hidden.float() * head.weight).sum() + head.bias)]

        return text, score, lambda out: [torch.tensor([0.0, out[0] / scale]).softmax(0)[1].item()]
    text = executor._parts["text"].backbone.text
    letters = torch.tensor(prompts[0].reads.logit_ids, device=text.embed_tokens.device)
    table = text.head[letters]

    def logits(hidden: Tensor) -> list[float]:
        # Rounded as each side rounds: bfloat16 rows give bfloat16 logits.
        return (hidden @ table.to(hidden.dtype).T).float().tolist()

    return text, logits, lambda out: torch.tensor(out).softmax(0).tolist()


def differences(found: Sequence[Sequence[float]], exact: Sequence[Sequence[float]]) -> list[float]:
    return [
        abs(a - b)
        for one, other in zip(found, exact, strict=True)
        for a, b in zip(one, other, strict=True)
    ]


@torch.inference_mode()
def compare(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    name = NAMES[options.size]
    write_files(name, folder, tiny=options.tiny)
    prompts = make_prompts(name, folder, options.prompts, options.longest)
    say(f"{len(prompts)} prompts, {sum(p.num_tokens for p in prompts)} tokens")
    executor = executor_of(name, folder, options.device)
    say("our executor is warm")
    text, read, chances = readers(executor, name, prompts)
    ours = [chances(out) for out in run_ours(executor, prompts)]
    say("ours is done")
    config = folder / "text" if (folder / "text").is_dir() else folder
    model = make_transformers(config, text, options.device)
    theirs = [chances(out) for out in run_transformers(model, prompts, read)]
    say("Transformers is done")
    # Its fallback even where flash-linear-attention was taken above.
    use_torch_rule()
    exact = [chances(out) for out in run_float32(model, prompts, read)]
    say("float32 is done")
    mine, other = differences(ours, exact), differences(theirs, exact)
    means = statistics.fmean(mine), statistics.fmean(other)
    flat = [chance for each in exact for chance in each]
    return {
        "prompts": len(prompts),
        "lengths": [prompt.num_tokens for prompt in prompts],
        "ours": {"mean": means[0], "largest": max(mine), "probabilities": ours},
        "transformers": {"mean": means[1], "largest": max(other), "probabilities": theirs},
        "float32": {"probabilities": exact, "deviation": statistics.pstdev(flat)},
        "ratio": means[0] / means[1],
    }


def use_torch_rule() -> None:
    """Undo what Transformers took from flash-linear-attention, which is not for float32."""
    from transformers.models.qwen3_5 import modeling_qwen3_5 as modeling

    for name in ("torch_chunk_gated_delta_rule",):
        function = getattr(modeling, name)
        while hasattr(function, "__wrapped__"):
            function = function.__wrapped__
        setattr(modeling, name, function)


def main() -> None:
    parser = arguments(__doc__, "")
    parser.add_argument("size", choices=list(NAMES))
    parser.add_argument("--prompts", type=int, default=64)
    parser.add_argument("--longest", type=int, default=1024)
    parser.add_argument(
        "--fla", action="store_true", help="Transformers with it, where it is there"
    )
    options = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    # `kernels` is a file here and a package that Transformers looks for.
    sys.path.pop(0)
    if not options.fla:
        sys.modules["fla"] = None  # type: ignore[assignment]
    with tempfile.TemporaryDirectory() as temporary:
        found = compare(options, Path(temporary))
    name = f"parity.{options.size.lower()}"
    values = {
        "ratio_to_transformers": found["ratio"],
        "ours_mean_difference": found["ours"]["mean"],
        "transformers_mean_difference": found["transformers"]["mean"],
    }
    rows = [
        {"name": f"{name}.{key}", "value": value, "unit": "", "target": TARGETS.get(key)}
        for key, value in values.items()
    ]
    for row in rows:
        say(f"-- {row['name']} {row['value']:.3e} (target {row['target']})")
    options.out.write_text(
        json.dumps({"facts": facts(options), "rows": rows, "report": found}) + "\n"
    )


if __name__ == "__main__":
    main()
