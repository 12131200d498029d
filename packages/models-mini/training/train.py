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
from sample import MIX, STRANGERS, Sampler
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
    noul: str = "prefix0-single"
    seed: int = 1
    steps: int = 1500
    batch: int = 64
    body_rate: float = 1e-4
    head_rate: float = 1e-3
    dropout: float = 0.1
    weight_decay: float = 0.01
    warmup: int = 100
    clip: float = 1.0
    distance_weight: float = 0.3
    smoothing: float = 0.05
    contrast: float = 0.5
    strangers: float = STRANGERS
    cosine: str = "choice score"  # types without an MLP
    frozen: int = 0  # layers that stay the base's, counted from the first
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
        sampler = Sampler(self.families, self.flags, rng, settings.mix, settings.strangers)
        items = sampler.batch(settings.batch)
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
    network = Network(Encoder(torch.from_numpy(words), settings.dropout), settings.cosine.split())
    network.encoder.load_state_dict({k: torch.from_numpy(v) for k, v in body.items()}, strict=True)
    for part in frozen_parts(network, settings.frozen):
        part.requires_grad_(False)
    torch.manual_seed(settings.seed)  # for dropout
    return network.to(device)


def frozen_parts(network, layers):
    """The embeddings and the first layers, if there are layers to freeze."""
    encoder = network.encoder
    return [encoder.embeddings, *encoder.encoder["layer"][:layers]] if layers else []


def make_optimizer(network, settings):
    """AdamW with two rates."""
    groups = [
        {
            "params": [p for p in network.encoder.parameters() if p.requires_grad],
            "lr": settings.body_rate,
        },
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
    parameters = [p for p in network.parameters() if p.requires_grad]
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


def batches_of(items, settings, size=128):
    """Items laid out once, to be answered by several networks."""
    ids_of = token_ids_of()
    parts = [items[start : start + size] for start in range(0, len(items), size)]
    return [make_batch(part, ids_of, settings.readouts, TYPES) for part in parts]


@torch.no_grad()
def answer(network, batches, device):
    """Logits of the items as arrays, without dropout."""
    network.eval()
    found = []
    for batch in batches:
        rows = network(on_device(batch, device)).float().cpu().numpy()
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


class Judge:
    """Asks the development questions; laid out once."""

    def __init__(self, settings, device):
        families, flags = load_families(), load_flags()
        self.device = device
        self.items = evaluate.development_items(families, flags)
        self.pairs = evaluate.paraphrases(families)
        self.batches = batches_of(self.items, settings)
        self.pair_batches = batches_of([item for pair in self.pairs for item in pair], settings)

    def merit(self, network):
        """What a choice between networks is made by."""
        return evaluate.merit(self.items, answer(network, self.batches, self.device))

    def figures_of(self, network):
        """The report, with temperatures and paraphrase agreement."""
        logits = answer(network, self.batches, self.device)
        found, temperatures = evaluate.report(self.items, logits)
        logits = answer(network, self.pair_batches, self.device)
        agreed = list(zip(logits[::2], logits[1::2], strict=True))
        agreement = evaluate.agreement(self.pairs, agreed)
        return {"figures": found, "temperatures": temperatures, "paraphrases": agreement}


# Shares of the trained encoder that are tried, the rest being the base: what was learnt from few
# families carries over to others best part of the way.
BLENDS = (1.0, 0.85, 0.7, 0.55, 0.4)


def blend(network, judge):
    """Leave the encoder at the best of `BLENDS`; returns the merit of each."""
    tuned = {k: v.clone() for k, v in network.encoder.state_dict().items()}
    base = {k: torch.from_numpy(v).to(judge.device) for k, v in load_base()[1].items()}
    merits = {}

    def mix(share):
        mixed = {k: share * tuned[k] + (1 - share) * base[k] for k in base}
        network.encoder.load_state_dict(mixed)

    for share in BLENDS:
        mix(share)
        merits[share] = judge.merit(network)
    mix(max(merits, key=merits.get))
    return merits


def finish(network, settings, out, device, facts):
    """Blend, round, judge and write a trained network; returns the report."""
    judge = Judge(settings, device)
    merits = blend(network, judge)
    round_body(network)
    save_tensors(network, out)
    found = {
        "settings": dataclasses.asdict(settings),
        "text_sha256": text_hash(),
        **facts,
        "blend": max(merits, key=merits.get),
        "blends": {str(share): round(merit, 4) for share, merit in merits.items()},
        "torch": torch.__version__,
        "device": torch.cuda.get_device_name() if device.type == "cuda" else "cpu",
        **judge.figures_of(network),
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
