"""The plugin: registers `mini`, and imports nothing heavy until it is served."""

from __future__ import annotations

from typing import TYPE_CHECKING

from system1_core import Load, ModelFamily, Option, hookimpl

if TYPE_CHECKING:
    from models_mini.executor import MiniExecutor
    from models_mini.processor import MiniProcessor

DESCRIPTION = "an embedded starter model: for real use take LAYA or larger"
EXAMPLE = {
    "state": "I was charged twice this month, please give me my money back.",
    "questions": {
        "team": {
            "type": "choice",
            "instructions": "Which team should handle this?",
            "criteria": {
                "billing": "charges, refunds and invoices",
                "technical": "errors, crashes and things that do not work",
                "sales": None,
            },
        },
        "urgency": {
            "type": "score",
            "instructions": "How urgent is this?",
            "criteria": ["can wait for weeks", "this week", "today", "immediately"],
        },
        "refund": {"type": "noul", "instructions": "Does the customer ask for a refund?"},
    },
}


def _load_processor(load: Load) -> MiniProcessor:
    from models_mini.checkpoint import open_checkpoint
    from models_mini.processor import MiniProcessor

    return MiniProcessor(open_checkpoint(load.folder), load.options["cache_mib"] * 2**20)


def _load_executor(load: Load) -> MiniExecutor:
    from models_mini.checkpoint import open_checkpoint
    from models_mini.executor import MiniExecutor

    return MiniExecutor(open_checkpoint(load.folder), load.options["threads"])


def _whole_number(text: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise ValueError(f"{text!r} is not a whole number, for instance 2")
    return int(text)


@hookimpl
def system1_register_models() -> list[ModelFamily]:
    return [
        ModelFamily(
            name="mini",
            load_processor=_load_processor,
            load_executor=_load_executor,
            description=DESCRIPTION,
            release_date="2026-11-30",
            devices=("cpu",),
            aliases=("mini-0.3",),
            options=(
                Option(
                    name="threads",
                    help="CPU threads; 0 means one for each physical core, at most 8",
                    default=0,
                    parse=_whole_number,
                ),
                Option(
                    name="cache_mib",
                    help="memory for vectors of options that came before",
                    default=32,
                    parse=_whole_number,
                ),
            ),
            default_rank=10,
            example=EXAMPLE,
        )
    ]
