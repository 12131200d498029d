"""The hook: LAYA with routing, and each checkpoint on its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from models_laya.checkpoint import CHECKPOINTS, NAMES
from models_laya.options import COMMON_OPTIONS, ROUTING_OPTIONS
from models_laya.routing import ALIASES, FAMILY_REPO
from system1_core.family import Load, ModelFamily
from system1_core.hookspecs import hookimpl

if TYPE_CHECKING:
    from system1_core.executor import Executor
    from system1_core.processor import Processor
    from system1_core.wire.dialect import Dialect

EXAMPLE = {
    "state": "I was charged twice for March. Please refund the duplicate payment today.",
    "questions": {
        "team": {
            "type": "choice",
            "instructions": "Which team should handle this?",
            "criteria": {
                "billing": "invoices, payments and refunds",
                "technical": "bugs and outages",
                "other": None,
            },
        },
        "urgency": {
            "type": "score",
            "instructions": "How urgent is it?",
            "criteria": ["not urgent", "this week", "today"],
        },
        "refund": {"type": "noul", "instructions": "Does the customer ask for a refund?"},
    },
}


def _load_processor(load: Load) -> Processor:
    from models_laya.load import load_processor

    return load_processor(load)


def _load_executor(load: Load) -> Executor:
    from models_laya.load import load_executor

    return load_executor(load)


def _reference(options: Mapping[str, Any]) -> Dialect:
    from models_laya.reference import ReferenceDialect

    return ReferenceDialect(
        strict=bool(options.get("strict")), tournament_group=options.get("tournament_group")
    )


def _family(name: str, description: str, **fields: Any) -> ModelFamily:
    loaders: dict[str, Callable[[Load], Any]] = {
        "load_processor": _load_processor,
        "load_executor": _load_executor,
    }
    return ModelFamily(
        name=name,
        description=description,
        framework="torch",
        example=EXAMPLE,
        reference=_reference,
        **loaders,
        **fields,
    )


@hookimpl
def system1_register_models() -> Iterable[ModelFamily]:
    singles = [
        _family(
            f"laya-{checkpoint.name}",
            f"LAYA {checkpoint.name}: {checkpoint.description}",
            aliases=_aliases(checkpoint.name),
            checkpoints=(checkpoint,),
            options=COMMON_OPTIONS,
        )
        for checkpoint in CHECKPOINTS
    ]
    every = [alias for name in NAMES for alias in (f"laya-{name}", *_aliases(name))]
    return [
        _family(
            "laya",
            "LAYA: English, multilingual and typed decisions, routed by the text",
            aliases=(FAMILY_REPO, *every),
            checkpoints=CHECKPOINTS,
            options=(*COMMON_OPTIONS, *ROUTING_OPTIONS),
            default_rank=20,
        ),
        *singles,
    ]


def _aliases(name: str) -> tuple[str, ...]:
    """Upstream's names of a checkpoint, itself included."""
    return tuple(alias for alias in (name, *ALIASES[name]) if alias != f"laya-{name}")
