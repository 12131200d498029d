"""LAYA on a CPU: the PyPI package `laya` against ours, in one run with equal threads.

    python benchmarks/laya_cpu.py --threads 2 --out benchmarks/results/cpu/laya_cpu.json

Builds a full-size English checkpoint (421,293,830 parameters) with random float16 weights in a
temporary folder. Each contender is a process of its own (`--laya-python` and `--ours-python` name
interpreters, one that has both will do); they take turns, request by request. `laya` runs in
float32 as it comes; ours in float32 and in bfloat16. Reported are medians, quartiles, speed-ups,
and how far bfloat16 moves a probability from float32. The weights are random, so answers mean
nothing; times do not depend on their values.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

TOKENIZER = Path(__file__).parents[1] / "packages/models-laya/tests/fixtures/checkpoint/tokenizer"
ENCODER = {
    "model_type": "modernbert",
    "architectures": ["ModernBertModel"],
    "hidden_size": 1024,
    "intermediate_size": 2624,
    "num_hidden_layers": 28,
    "num_attention_heads": 16,
    "vocab_size": 50368,
    "global_attn_every_n_layers": 3,
    "global_rope_theta": 160000.0,
    "local_rope_theta": 10000.0,
    "local_attention": 128,
    "max_position_embeddings": 8192,
    "hidden_activation": "gelu",
    "norm_eps": 1e-5,
    "norm_bias": False,
    "attention_bias": False,
    "mlp_bias": False,
    "pad_token_id": 1010,
    "cls_token_id": 1008,
    "sep_token_id": 1009,
    "bos_token_id": 1008,
    "eos_token_id": 1009,
}
HEAD = {
    "encoder": "random",
    "head_layers": 2,
    "max_len": 512,
    "head_max_len": 192,
    "act_costs": {"escalate": 0.5},
    "amp_dtype": "bf16",
    "temperature": [1.0, 1.0, 1.0],
}
STATE = "I was charged twice for March, please refund the duplicate payment today."


def one_question() -> dict[str, Any]:
    """A short request: one choice of three."""
    criteria = {
        "billing": "invoices, payments and refunds",
        "technical": "bugs and outages",
        "other": "everything else",
    }
    question = {"type": "choice", "instructions": "Which team?", "criteria": criteria}
    return {"state": STATE, "questions": {"team": question}}


def eight_questions() -> dict[str, Any]:
    """Eight questions of mixed length about one state, as an agent asks them."""
    topics = ("delivery", "billing", "login", "refund", "outage", "invoice", "account", "travel")
    described = {topic: f"everything about {topic} that a customer may ask" for topic in topics}
    few = dict(list(described.items())[:4])
    levels = ["not urgent at all", "can wait until next week", "needs attention today", "blocking"]
    questions = {
        "topic": {"type": "choice", "instructions": "What is it about?", "criteria": described},
        "team": {"type": "choice", "instructions": "Which team?", "criteria": few},
        "yes": {"type": "choice", "instructions": "Reply?", "criteria": {"yes": "", "no": ""}},
        "urgency": {"type": "score", "instructions": "How urgent?", "criteria": levels},
        "mood": {"type": "score", "instructions": "Mood?", "criteria": ["calm", "angry"]},
        "refund": {"type": "noul", "instructions": "Is a refund asked for?"},
        "twice": {"type": "noul", "instructions": "Was money taken twice?"},
        "tone": {"type": "noul", "instructions": "Is the tone polite?"},
    }
    return {"state": STATE, "questions": questions}


REQUESTS = {"one question": one_question(), "eight questions": eight_questions()}


def build_checkpoint(folder: Path) -> None:
    """Random float16 weights in the published layout; norms near one, matrices small."""
    import torch
    from safetensors.torch import save_file

    from models_laya.checkpoint import tensor_shapes
    from models_laya.config import load_config

    (folder / "encoder").mkdir(parents=True)
    (folder / "encoder/config.json").write_text(json.dumps(ENCODER))
    (folder / "rl_agent_config.json").write_text(json.dumps(HEAD))
    shutil.copytree(TOKENIZER, folder / "tokenizer")
    generator = torch.Generator().manual_seed(0)
    tensors = {}
    for name, shape in tensor_shapes(load_config(folder)).items():
        spread = 0.1 if len(shape) == 1 else shape[-1] ** -0.5
        tensor = torch.randn(shape, generator=generator) * spread
        is_gain = len(shape) == 1 and ("norm" in name or name.startswith("scorer.0"))
        tensors[name] = (tensor + (is_gain and name.endswith("weight"))).half()
    save_file(tensors, folder / "model.safetensors")


class Theirs:
    """The PyPI package, in this process."""

    def __init__(self, folder: str, dtype: str) -> None:
        from laya import Agent

        self._agent = Agent(folder, device="cpu")
        self.versions = {name: version(name) for name in ("laya", "torch", "transformers")}
        self.row_lengths: dict[str, list[int]] = {}

    def __call__(self, request: dict[str, Any]) -> dict[str, Any]:
        return self._agent.predict(request["state"], request["questions"])["answers"]


class Ours:
    """Processor and executor, in this process."""

    def __init__(self, folder: str, dtype: str) -> None:
        from models_laya.load import load_executor, load_processor
        from system1_core.family import Load
        from system1_torch.plugin import TorchBackend

        load = Load(
            family="laya-english",
            folder=Path(folder),
            dtype=dtype,
            backend=TorchBackend(
                device="cpu", dtypes=("float32", "bfloat16"), default_dtype="float32"
            ),
            options={"threads": int(os.environ["OMP_NUM_THREADS"])},
        )
        self._processor, self._executor = load_processor(load), load_executor(load)
        self.versions = {name: version(name) for name in ("models-laya", "torch")}
        self.row_lengths = {name: self._row_lengths(body) for name, body in REQUESTS.items()}

    def _row_lengths(self, body: dict[str, Any]) -> list[int]:
        from system1_core.wire.dialect import Body, RequestLimits
        from system1_core.wire.systemone import SystemOne

        request = SystemOne().parse(Body(json=body), RequestLimits())
        return [prompt.num_tokens for prompt in self._processor.prepare(request).prompts]

    def __call__(self, request: dict[str, Any]) -> dict[str, Any]:
        from system1_core.wire.dialect import Body, RequestLimits
        from system1_core.wire.systemone import SystemOne

        dialect = SystemOne()
        parsed = dialect.parse(Body(json=request), RequestLimits())
        prepared = self._processor.prepare(parsed)
        outputs = self._executor.execute(prepared.prompts)
        result = self._processor.finish(prepared.context, outputs)
        return dialect.render(parsed, result, "laya")["answers"]


CONTENDERS = {
    "laya float32": (Theirs, "float32"),
    "ours float32": (Ours, "float32"),
    "ours bfloat16": (Ours, "bfloat16"),
}


def work(name: str, folder: str, threads: int) -> None:
    """A contender's process: a request's name comes in, seconds and answers go out, a line each."""
    import torch

    torch.set_num_threads(threads)
    make, dtype = CONTENDERS[name]
    contender = make(folder, dtype)
    torch.set_num_threads(threads)
    facts = {"versions": contender.versions, "row_lengths": contender.row_lengths}
    print(json.dumps(facts), flush=True)
    for line in sys.stdin:
        started, cpu_started = time.perf_counter(), time.process_time()
        answers = contender(REQUESTS[line.strip()])
        seconds, cpu_seconds = time.perf_counter() - started, time.process_time() - cpu_started
        reply = {"seconds": seconds, "cpu_seconds": cpu_seconds, "answers": answers}
        print(json.dumps(reply), flush=True)


class Worker:
    """A contender's process, seen from outside."""

    def __init__(self, python: str, name: str, folder: Path, threads: int) -> None:
        command = [python, __file__, "--work", name, "--folder", folder, "--threads", threads]
        settings = {"OMP_NUM_THREADS": str(threads), "HF_HUB_OFFLINE": "1"}
        self._process = subprocess.Popen(
            [str(part) for part in command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=os.environ | settings,
        )
        self.facts = self._read()

    def ask(self, request: str) -> dict[str, Any]:
        assert self._process.stdin is not None
        self._process.stdin.write(request + "\n")
        self._process.stdin.flush()
        return self._read()

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        while line and not line.startswith("{"):  # a library may print
            line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"a worker ended: {self._process.args}")
        return json.loads(line)

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def measure(workers: dict[str, Worker], request: str, rounds: int) -> dict[str, Any]:
    """Every contender once a round, in turn; one unmeasured round first."""
    seconds: dict[str, list[float]] = {name: [] for name in workers}
    cpu: dict[str, list[float]] = {name: [] for name in workers}
    answers = {}
    for turn in range(rounds + 1):
        for name, worker in workers.items():
            reply = worker.ask(request)
            answers[name] = reply["answers"]
            if turn:
                seconds[name].append(reply["seconds"] * 1e3)
                cpu[name].append(reply["cpu_seconds"] * 1e3)
    medians = {name: statistics.median(values) for name, values in seconds.items()}
    quartiles = {name: statistics.quantiles(values, n=4) for name, values in seconds.items()}
    return {
        "milliseconds": {
            name: {
                "median": round(medians[name], 2),
                "lower_quartile": round(quartiles[name][0], 2),
                "upper_quartile": round(quartiles[name][2], 2),
                "minimum": round(min(values), 2),
                "median_of_processor_time": round(statistics.median(cpu[name]), 2),
            }
            for name, values in seconds.items()
        },
        "speed_up_over_laya_float32": {
            name: round(medians["laya float32"] / medians[name], 3)
            for name in workers
            if name != "laya float32"
        },
        "largest_probability_difference": {
            "ours float32 from laya float32": drift(
                answers["ours float32"], answers["laya float32"]
            ),
            "ours bfloat16 from ours float32": drift(
                answers["ours bfloat16"], answers["ours float32"]
            ),
        },
    }


def drift(found: dict[str, Any], expected: dict[str, Any]) -> float:
    """The largest difference of one probability."""
    worst = 0.0
    for name, answer in expected.items():
        pairs = zip(_probabilities(found[name]), _probabilities(answer), strict=True)
        worst = max(worst, *(abs(one - other) for one, other in pairs))
    return round(worst, 6)


def _probabilities(answer: dict[str, Any]) -> list[float]:
    return [answer["noul"]] if answer["type"] == "noul" else list(answer["probabilities"].values())


def describe_cpu() -> dict[str, Any]:
    """What the figures depend on."""
    text = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    fields = dict(
        (part.strip() for part in line.split(":", 1)) for line in text.splitlines() if ":" in line
    )
    flags = set(fields.get("flags", "").split())
    wanted = ("avx2", "avx512f", "avx512_bf16", "amx_bf16", "amx_tile")
    return {
        "name": fields.get("model name", platform.processor()),
        "flags": [flag for flag in wanted if flag in flags],
        "cpus": os.cpu_count(),
    }


def run(options: argparse.Namespace) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "laya-english"
        build = [options.ours_python, __file__, "--build", str(folder)]
        subprocess.run(build, check=True)
        pythons = {"laya float32": options.laya_python}
        workers = {
            name: Worker(pythons.get(name, options.ours_python), name, folder, options.threads)
            for name in CONTENDERS
        }
        results = {name: measure(workers, name, options.rounds) for name in REQUESTS}
        facts = {name: worker.facts for name, worker in workers.items()}
        for worker in workers.values():
            worker.close()
    return {
        "command": "python benchmarks/laya_cpu.py " + " ".join(shown_arguments(options)),
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "cpu": describe_cpu(),
        "note": options.note,
        "threads": options.threads,
        "rounds": options.rounds,
        "versions": {name: each["versions"] for name, each in facts.items()},
        "tokens_of_each_question": facts["ours float32"]["row_lengths"],
        "results": results,
    }


def shown_arguments(options: argparse.Namespace) -> list[str]:
    """The command's settings without this machine's paths."""
    return ["--threads", str(options.threads), "--rounds", str(options.rounds)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--laya-python", default=sys.executable, help="interpreter with laya")
    parser.add_argument("--ours-python", default=sys.executable, help="interpreter with ours")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--rounds", type=int, default=9, help="measured turns of each contender")
    parser.add_argument("--note", default="", help="what else a reader must know, kept in the file")
    parser.add_argument("--out", type=Path, help="file for the results")
    parser.add_argument("--work", choices=CONTENDERS, help=argparse.SUPPRESS)
    parser.add_argument("--build", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.build:
        build_checkpoint(options.build)
    elif options.work:
        work(options.work, options.folder, options.threads)
    else:
        text = json.dumps(run(options), indent=1) + "\n"
        if options.out:
            options.out.write_text(text)
        print(text)


if __name__ == "__main__":
    main()
