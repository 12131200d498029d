"""The plugin: registers `clm`, and imports nothing heavy until it is served."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from models_clm.checkpoint import CHECKPOINTS, LATEST, RAW
from models_clm.options import OPTIONS
from models_clm.rank import rank
from models_clm.reference import ReferenceDialect
from system1_core import Load, ModelFamily, Route, hookimpl

if TYPE_CHECKING:
    from models_clm.executor import ClmExecutor
    from models_clm.processor import ClmProcessor

EXAMPLE = {
    "state": "The invoice was paid twice on Monday and nobody has answered the mail.",
    "questions": {
        "desk": {
            "type": "choice",
            "instructions": "Which desk?",
            "criteria": {"billing": "Money matters", "tech": "Software faults", "legal": None},
        },
        "paid": {"type": "noul", "instructions": "Was it paid twice?"},
        "mood": {
            "type": "score",
            "instructions": "Mood of the writer",
            "criteria": ["calm", "annoyed", "angry"],
        },
    },
}


def _load_processor(load: Load) -> ClmProcessor:
    from models_clm.load import load_processor

    return load_processor(load)


def _load_executor(load: Load) -> ClmExecutor:
    from models_clm.load import load_executor

    return load_executor(load)


def _reference(options: Mapping[str, Any]) -> ReferenceDialect:
    return ReferenceDialect()


@hookimpl
def system1_register_models() -> list[ModelFamily]:
    return [
        ModelFamily(
            name="clm",
            load_processor=_load_processor,
            load_executor=_load_executor,
            description="Contrastive decisions: Qwen3-8B embeddings through two small heads",
            release_date="2026-09-24",
            aliases=(LATEST, RAW),
            checkpoints=CHECKPOINTS,
            options=OPTIONS,
            example=EXAMPLE,
            framework="torch",
            routes=(Route(path="/v1/rank", answer=rank, summary="Rank texts by fit"),),
            reference=_reference,
        )
    ]
