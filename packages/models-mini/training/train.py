"""Trains mini and writes the shipped model: `python train.py`. See README.md."""

import argparse
import json
import random
import time
from pathlib import Path

import evaluate
import torch
import torch.nn.functional as F
from base import base_tokenizer_json, load_base_weights
from export import write_model
from families import load_families, load_flags, text_hash
from network import TYPES, Encoder, Head, load_base
from safetensors.torch import load_file, save_file
from sample import Sampler
from tokenizers import Tokenizer

HERE = Path(__file__).parent
THREADS = 1  # sums depend on it: with one thread a seed means one model, and two barely gain
BATCH = 24
BODY_RATE, HEAD_RATE, WARMUP, CLIP = 6e-5, 1e-3, 20, 1.0  # measured in a prototype
DISTANCE_WEIGHT = 0.3
CHUNK = 48  # texts of one forward pass, sorted by length to pad little


class Model:
    """Encoder, head and tokenizer; `logits` answers items."""

    def __init__(self, tokenizer, encoder, head):
        self.tokenizer, self.encoder, self.head = tokenizer, encoder, head

    def logits(self, items):
        """One logits vector for each item; every distinct text is encoded once."""
        texts = sorted({text for item in items for text in (item.state, *item.candidates)})
        place = {text: index for index, text in enumerate(texts)}
        vectors = self._encode(texts)
        return [
            self.head(
                vectors[place[item.state]],
                vectors[[place[text] for text in item.candidates]],
                TYPES.index(item.type),
            )
            for item in items
        ]

    def _encode(self, texts):
        ids = [encoding.ids for encoding in self.tokenizer.encode_batch(texts)]
        order = sorted(range(len(ids)), key=lambda index: len(ids[index]))
        chunks = [order[start : start + CHUNK] for start in range(0, len(order), CHUNK)]
        vectors = torch.cat([self._forward([ids[index] for index in chunk]) for chunk in chunks])
        return vectors[torch.argsort(torch.tensor(order))]

    def _forward(self, ids):
        width = max(map(len, ids))
        padded = torch.tensor([row + [0] * (width - len(row)) for row in ids])
        lengths = torch.tensor([len(row) for row in ids])
        return self.encoder(padded, torch.arange(width) < lengths[:, None])

    @torch.no_grad()
    def answer(self, items):
        """Logits as arrays, without dropout."""
        self.encoder.eval()
        parts = (items[start : start + BATCH] for start in range(0, len(items), BATCH))
        return [row.numpy() for part in parts for row in self.logits(part)]


def item_loss(logits, item):
    """Cross-entropy; a score also pays for the expected distance to the right level."""
    loss = F.cross_entropy(logits[None], torch.tensor([item.target]))
    if item.type != "score":
        return loss
    distance = (torch.arange(len(logits)) - item.target).abs().float()
    return loss + DISTANCE_WEIGHT * (logits.softmax(-1) @ distance)


def make_model(args):
    """The base encoder with an untrained head."""
    torch.manual_seed(args.seed)
    encoder = Encoder()
    load_base(encoder, load_base_weights(args.work))
    return Model(Tokenizer.from_str(base_tokenizer_json(args.work)), encoder, Head())


def make_optimizer(model, steps):
    """AdamW with two rates, warmed up, then falling linearly to zero."""
    body = [p for p in model.encoder.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(
        [{"params": body, "lr": BODY_RATE}, {"params": model.head.parameters(), "lr": HEAD_RATE}]
    )
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min((step + 1) / WARMUP, (steps - step) / max(1, steps - WARMUP))
    )
    return optimizer, schedule


def train(model, sampler, steps):
    """Fine-tunes on what the sampler draws."""
    optimizer, schedule = make_optimizer(model, steps)
    parameters = [*model.encoder.parameters(), *model.head.parameters()]
    model.encoder.train()
    for step in range(steps):
        items = [sampler.draw() for _ in range(BATCH)]
        pairs = zip(model.logits(items), items, strict=True)
        loss = torch.stack([item_loss(logits, item) for logits, item in pairs]).mean()
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, CLIP)
        optimizer.step()
        schedule.step()
        if step % 25 == 0 or step == steps - 1:
            print(f"step {step:4d}  loss {loss.item():.3f}", flush=True)


def save_tensors(model, path):
    """The trained float32 tensors, from which the shipped files can be made again."""
    save_file({f"{p}.{n}": t for p, m in _parts(model) for n, t in m.state_dict().items()}, path)


def load_tensors(model, path):
    """What `save_tensors` wrote, strictly."""
    tensors = load_file(path)
    for part, module in _parts(model):
        module.load_state_dict(
            {n.removeprefix(f"{part}."): t for n, t in tensors.items() if n.startswith(f"{part}.")}
        )


def _parts(model):
    return (("encoder", model.encoder), ("head", model.head))


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=250)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=HERE.parent / "src/models_mini/model")
    parser.add_argument(
        "--work", type=Path, default=HERE / "build", help="the base wheel goes here"
    )
    parser.add_argument("--tensors", type=Path, help="export these trained tensors, do not train")
    return parser.parse_args()


def main():
    args, start = parse_arguments(), time.perf_counter()
    torch.set_num_threads(THREADS)
    torch.use_deterministic_algorithms(True)
    model = make_model(args)
    families, flags = load_families(), load_flags()
    items = evaluate.development_items(families, flags, seed=0)
    print("before", json.dumps(evaluate.report(items, model.answer(items))[0]))
    if args.tensors:
        load_tensors(model, args.tensors)
    else:
        seen = [[one for one in group if not one.development] for group in (families, flags)]
        train(model, Sampler(*seen, random.Random(args.seed)), args.steps)
        save_tensors(model, args.work / f"seed-{args.seed}.safetensors")
    after, temperatures = evaluate.report(items, model.answer(items))
    facts = {"seed": args.seed, "steps": args.steps, "batch": BATCH, "text_sha256": text_hash()}
    write_model(args.out, model, temperatures, base_tokenizer_json(args.work), facts)
    print("after", json.dumps(after), "temperatures", temperatures)
    print(f"{time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main()
