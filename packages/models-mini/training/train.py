"""Trains mini and writes its tensors and figures: `python train.py --out build/run`. See README.md.

The same settings, machine and torch give the same tensors, bit for bit.
"""

import argparse
import dataclasses
import json
import os
import random
import time
from pathlib import Path

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # what deterministic products need
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # workers are processes

import evaluate
import numpy as np
import torch
from base import BUILD, load_base
from families import load_families, load_flags, text_hash
from network import Encoder, Network
from rows import make_batch
from safetensors.torch import save_file
from sample import MIX, Sampler
from sizes import TYPES
from tokenizers import Tokenizer
from torch.utils.data import DataLoader, Dataset

TOKENIZER = Path(__file__).parent.parent / "src/models_mini/model/tokenizer.json"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    """What one training run is; with `seconds` it takes as many of its steps as fit into them,
    for exploring: the report tells how many, and a run of so many steps gives the same tensors."""

    name: str = "mini"
    choice: str = "pooled"
    score: str = "pooled"
    noul: str = "prefix0"
    seed: int = 1
    steps: int = 3000
    batch: int = 64
    body_rate: float = 1e-4
    head_rate: float = 1e-3
    dropout: float = 0.1
    weight_decay: float = 0.01
    warmup: int = 100
    clip: float = 1.0
    distance_weight: float = 0.3
    smoothing: float = 0.05
    contrast: float = MIX["contrast"]
    precision: str = "fp32"
    seconds: float | None = None
    workers: int = 2

    @property
    def readouts(self):
        return {type: getattr(self, type) for type in TYPES}

    @property
    def mix(self):
        """`MIX` with another share of contrast sets, the others in proportion."""
        rest = (1 - self.contrast) / (1 - MIX["contrast"])
        return {k: self.contrast if k == "contrast" else v * rest for k, v in MIX.items()}


class Steps(Dataset):
    """The batch of each step, drawn from the seed and the step alone."""

    def __init__(self, settings, families, flags):
        self.settings, self.families, self.flags = settings, families, flags
        self.ids_of = token_ids_of()

    def __len__(self):
        return self.settings.steps

    def __getitem__(self, step):
        settings = self.settings
        rng = random.Random(f"{settings.seed} {step}")
        items = Sampler(self.families, self.flags, rng, settings.mix).batch(settings.batch)
        return make_batch(items, self.ids_of, settings.readouts, TYPES)


def token_ids_of():
    """From a text to its token ids with both markers; a text over the positions is refused."""
    tokenizer = Tokenizer.from_file(str(TOKENIZER))

    def ids_of(text):
        ids = tokenizer.encode(text).ids
        if len(ids) > 512:
            raise SystemExit(f"{len(ids)} tokens, limit 512: {text[:80]!r}")
        return ids

    return ids_of


def on_device(batch, device):
    """A batch's arrays as tensors."""
    to = lambda array: torch.from_numpy(array).to(device, non_blocking=True)  # noqa: E731
    rows = [
        type(r)(**{f.name: to(getattr(r, f.name)) for f in dataclasses.fields(r)})
        for r in batch.chunks
    ]
    rest = {
        name: to(getattr(batch, name))
        for name in ("places", "present", "is_single", "types", "targets")
    }
    return type(batch)(chunks=(*rows,), row_types=(*map(to, batch.row_types),), **rest)


def batch_loss(logits, batch, settings):
    """Cross-entropy with smoothing; a score also pays for the expected distance to its level."""
    chances = logits.float().log_softmax(-1)
    safe = chances.masked_fill(~batch.present, 0)
    number = torch.arange(logits.shape[1], device=logits.device)
    right = (number == batch.targets[:, None]).float()
    even = batch.present / batch.present.sum(-1, keepdim=True)
    wanted = (1 - settings.smoothing) * right + settings.smoothing * even
    loss = -(wanted * safe).sum(-1)
    distance = (number - batch.targets[:, None]).abs() * batch.present
    distance = (chances.exp() * distance).sum(-1) * (batch.types == TYPES.index("score"))
    return (loss + settings.distance_weight * distance).mean()


def make_network(settings, device):
    """The base with an untrained head, the same for every seed, so that runs can be averaged."""
    torch.manual_seed(0)
    words, body = load_base()
    network = Network(Encoder(torch.from_numpy(words), settings.dropout))
    network.encoder.load_state_dict({k: torch.from_numpy(v) for k, v in body.items()}, strict=True)
    torch.manual_seed(settings.seed)  # for dropout
    return network.to(device)


def make_optimizer(network, settings):
    """AdamW with two rates."""
    groups = [
        {"params": list(network.encoder.parameters()), "lr": settings.body_rate},
        {"params": list(network.head.parameters()), "lr": settings.head_rate},
    ]
    for group in groups:
        group["first_lr"] = group["lr"]
    return torch.optim.AdamW(groups, weight_decay=settings.weight_decay, foreach=True)


# With `seconds`, the pace of these steps decides how many there will be; the first ones are slow.
PACE = range(20, 80)


def train(network, steps, settings, device, log):
    """Rates warm up, then fall linearly to zero; returns the steps done."""
    optimizer, started = make_optimizer(network, settings), time.perf_counter()
    parameters = list(network.parameters())
    network.train()
    loader = DataLoader(steps, batch_size=None, shuffle=False, num_workers=settings.workers)
    # Up to the end of PACE the rate does not depend on it.
    count = settings.steps
    assert not settings.seconds or settings.warmup > PACE.stop
    for step, batch in enumerate(loader):
        now = time.perf_counter()
        if step == PACE.start:
            paced = now
        elif step == PACE.stop and settings.seconds:
            fits = step + (settings.seconds - (now - started)) * len(PACE) / (now - paced)
            count = min(count, max(step, int(fits) // 50 * 50))
        if step >= count:
            break
        for group in optimizer.param_groups:
            group["lr"] = group["first_lr"] * min((step + 1) / settings.warmup, 1 - step / count)
        batch = on_device(batch, device)
        with torch.autocast(device.type, torch.bfloat16, enabled=settings.precision == "bf16"):
            logits = network(batch)
        loss = batch_loss(logits, batch, settings)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, settings.clip)
        optimizer.step()
        if step % 100 == 0:
            log(f"step {step:5d}  loss {loss.item():.4f}  {time.perf_counter() - started:.0f} s")
    return count


@torch.no_grad()
def answer(network, items, settings, device, size=128):
    """Logits of items as arrays, without dropout."""
    network.eval()
    ids_of, found = token_ids_of(), []
    for start in range(0, len(items), size):
        part = items[start : start + size]
        batch = on_device(make_batch(part, ids_of, settings.readouts, TYPES), device)
        rows = network(batch).float().cpu().numpy()
        found += [row[np.isfinite(row)] for row in rows]
    return found


def round_body(network):
    """The encoder as it is kept, in float16; the head stays float32."""
    for parameter in network.encoder.parameters():
        parameter.data = parameter.data.half().float()


def save_tensors(network, out):
    """Three files, each small enough to travel: two halves of the encoder, and the head."""
    body = {k: v.half().cpu().contiguous() for k, v in network.encoder.state_dict().items()}
    late = {k: v for k, v in body.items() if k.startswith(("encoder.layer.3", "encoder.layer.4"))}
    late |= {k: v for k, v in body.items() if k.startswith("encoder.layer.5")}
    head = {k: v.float().cpu().contiguous() for k, v in network.head.state_dict().items()}
    save_file({k: v for k, v in body.items() if k not in late}, out / "body-0.safetensors")
    save_file(late, out / "body-1.safetensors")
    save_file(head, out / "head.safetensors")


def figures_of(network, settings, device):
    """The report on development families, with temperatures and paraphrase agreement."""
    families, flags = load_families(), load_flags()
    items = evaluate.development_items(families, flags)
    found, temperatures = evaluate.report(items, answer(network, items, settings, device))
    pairs = evaluate.paraphrases(families)
    logits = answer(network, [item for pair in pairs for item in pair], settings, device)
    agreement = evaluate.agreement(pairs, list(zip(logits[::2], logits[1::2], strict=True)))
    return {"figures": found, "temperatures": temperatures, "paraphrases": agreement}


def finish(network, settings, out, device, facts):
    """Round, judge and write a trained network; returns the report."""
    round_body(network)
    save_tensors(network, out)
    found = {
        "settings": dataclasses.asdict(settings),
        "text_sha256": text_hash(),
        **facts,
        "torch": torch.__version__,
        "device": torch.cuda.get_device_name() if device.type == "cuda" else "cpu",
        **figures_of(network, settings, device),
    }
    (out / "report.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    return found


def prepare_torch(settings):
    """Deterministic algorithms, and the precision of products; returns the device."""
    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(1)
    torch.set_float32_matmul_precision("high" if settings.precision == "tf32" else "highest")
    torch.backends.cudnn.allow_tf32 = False
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def run(settings, out):
    """Train, round, judge, write; returns the report."""
    out.mkdir(parents=True, exist_ok=True)
    device, started = prepare_torch(settings), time.perf_counter()
    lines = []

    def log(line):
        lines.append(line)
        print(f"{settings.name}: {line}", flush=True)

    families = [family for family in load_families() if not family.development]
    flags = [flag for flag in load_flags() if not flag.development]
    network = make_network(settings, device)
    steps = train(network, Steps(settings, families, flags), settings, device, log)
    trained_s = time.perf_counter() - started
    facts = {"steps": steps, "train_s": round(trained_s, 1)}
    found = finish(network, settings, out, device, facts)
    (out / "log.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    log(f"{steps} steps in {trained_s:.0f} s  " + summary(found))
    return found


def summary(found):
    """One line of the figures that decide."""
    figures = found["figures"]
    parts = [f"{name} {one['accuracy']:.3f}" for name, one in figures.items()]
    if "score" in figures:
        parts.append(f"score within one {figures['score']['within_one']['accuracy']:.3f}")
    parts.append(f"ece {figures['all']['calibration_error']:.3f}")
    return "  ".join([*parts, f"paraphrases {found['paraphrases']['accuracy']:.3f}"])


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=BUILD / "run")
    parser.add_argument("--settings", type=Path, help="a JSON object of settings")
    for field in dataclasses.fields(Settings):
        if field.name != "seconds":
            kind = type(field.default)
            parser.add_argument(f"--{field.name.replace('_', '-')}", type=kind)
    return parser.parse_args()


def main():
    args = vars(parse_arguments())
    out, path = args.pop("out"), args.pop("settings")
    chosen = json.loads(path.read_text(encoding="utf-8")) if path else {}
    chosen |= {name: value for name, value in args.items() if value is not None}
    run(Settings(**chosen), out)


if __name__ == "__main__":
    main()
