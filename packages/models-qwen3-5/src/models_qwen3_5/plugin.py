"""The plain reader as a family: any Qwen3.5 chat checkpoint, read without training."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from system1_core.checkpoint import Checkpoint
from system1_core.executor import Executor
from system1_core.family import Load, ModelFamily, Option
from system1_core.hookspecs import hookimpl
from system1_core.processor import Processor

QWEN3_5_4B = Checkpoint(
    name="qwen3-5-4b",
    repo="Qwen/Qwen3.5-4B",
    revision="851bf6e806efd8d0a36b00ddf55e13ccb7b8cd0a",
    patterns=(
        "config.json",
        "preprocessor_config.json",
        "tokenizer.json",
        "tokenizer_config.json",
        "chat_template.jinja",
        "model.safetensors.index.json",
        "model.safetensors-*.safetensors",
    ),
    sha256={
        "config.json": "ddc63e1c717afa86c865bb5e01313d89d72bb53b97ad4a8a03ba8510c0621670",
        "tokenizer.json": "5f9e4d4901a92b997e463c1f46055088b6cca5ca61a6522d1b9f64c4bb81cb42",
        "chat_template.jinja": "a4aee8afcf2e0711942cf848899be66016f8d14a889ff9ede07bca099c28f715",
        "model.safetensors.index.json": (
            "cf3f798ee02ba45f9622aa8892a47369ab667d0afbf154ee7c2212de42e6302d"
        ),
        "model.safetensors-00001-of-00002.safetensors": (
            "26a93f066e1916adb13453dae5a0c707c0fbc71299ed98779571a907b8e74c61"
        ),
        "model.safetensors-00002-of-00002.safetensors": (
            "cb544bd9bfae93dc59b0f22b292f5933573854a7f9b97835c67060d7d910e188"
        ),
    },
    description="4B, text and images",
)
EXAMPLE = {
    "state": "Customer: I was charged twice for my order and want the second payment back.",
    "questions": {
        "topic": {
            "type": "choice",
            "instructions": "What is the message about?",
            "criteria": {"billing": "payments and refunds", "shipping": None, "other": None},
        },
        "anger": {
            "type": "score",
            "instructions": "How angry is the customer?",
            "criteria": ["calm", "annoyed", "furious"],
        },
        "refund": {"type": "noul", "instructions": "Does the customer ask for money back?"},
    },
}


def load_processor(load: Load) -> Processor:
    from models_qwen3_5.ops import takes_pixels
    from models_qwen3_5.processor import ReaderProcessor
    from models_qwen3_5.reader import read_temperatures

    path = load.options.get("temperatures")
    return ReaderProcessor(
        _folder(load),
        temperatures=read_temperatures(path) if path else None,
        on_device=takes_pixels(load.backend),
    )


def load_executor(load: Load) -> Executor:
    from models_qwen3_5.executor import BackboneExecutor, open_backbone

    return BackboneExecutor(open_backbone(load, _folder(load)), is_deterministic=load.deterministic)


def _folder(load: Load) -> Path:
    return load.folder or load.fetch(QWEN3_5_4B.name)


@hookimpl
def system1_register_models() -> Iterable[ModelFamily]:
    return [
        ModelFamily(
            name="qwen3-5",
            description="Any plain Qwen3.5 chat checkpoint, read by option letters; no training.",
            load_processor=load_processor,
            load_executor=load_executor,
            checkpoints=(QWEN3_5_4B,),
            options=(
                Option(
                    name="temperatures",
                    help='JSON file of temperatures by question type, for instance {"noul": 1.4}',
                ),
            ),
            example=EXAMPLE,
            accepts_images=True,
            framework="torch",
        )
    ]
