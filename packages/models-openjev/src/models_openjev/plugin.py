"""The hook: Open-Jev 9B, and 27B-v1.1."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from models_openjev.identity import OPEN_JEV_9B, OPEN_JEV_27B, Published
from system1_core.family import Load, ModelFamily, Option
from system1_core.hookspecs import hookimpl

if TYPE_CHECKING:
    from system1_core.executor import Executor
    from system1_core.processor import Processor
    from system1_core.wire.dialect import Dialect

EXAMPLE = {
    "state": "Dialog: Update installed.",
    "questions": {
        "close": {
            "type": "choice",
            "instructions": "Close it.",
            "criteria": {"ok": "OK", "wait": "Wait"},
        },
        "urgency": {
            "type": "score",
            "instructions": "How urgent is it?",
            "criteria": ["can wait", "today", "now"],
        },
        "done": {"type": "noul", "instructions": "Is the update installed?"},
    },
}


def _one_of(*allowed: str) -> Any:
    def parse(text: str) -> str:
        if text not in allowed:
            raise ValueError(f"{text!r}: use {' or '.join(allowed)}")
        return text

    return parse


OPTIONS = (
    Option(name="base", help="Folder of the base weights under the adapter; none: the pinned ones"),
    Option(
        name="unknown",
        help="allow: a folder is served as it is; refuse: only one of the published checkpoints",
        default="allow",
        parse=_one_of("refuse", "allow"),
    ),
    Option(
        name="split",
        help="how words are split: auto (as the original does), file, marks or no-marks",
        default="auto",
        parse=_one_of("auto", "file", "marks", "no-marks"),
    ),
)


def _reference(options: Mapping[str, Any]) -> Dialect:
    from models_openjev.reference import ReferenceDialect

    return ReferenceDialect()


def _family(name: str, published: Published, **fields: Any) -> ModelFamily:
    def load_processor(load: Load) -> Processor:
        from models_openjev.checkpoint import open_source
        from models_openjev.processor import load_processor

        return load_processor(load, open_source(load, published))

    def load_executor(load: Load) -> Executor:
        from models_openjev.checkpoint import open_source
        from models_openjev.executor import load_executor

        return load_executor(load, open_source(load, published))

    def export(load: Load, out: Path) -> None:
        from models_openjev.checkpoint import open_source
        from models_openjev.merge import export

        export(load, open_source(load, published), out)

    return ModelFamily(
        name=name,
        load_processor=load_processor,
        load_executor=load_executor,
        export=export,
        checkpoints=published.checkpoints(),
        options=OPTIONS,
        example=EXAMPLE,
        framework="torch",
        reference=_reference,
        **fields,
    )


@hookimpl
def system1_register_models() -> Iterable[ModelFamily]:
    return [
        _family(
            "openjev",
            OPEN_JEV_9B,
            description="Open-Jev: scores every candidate answer on its own. Pulls 9B.",
            aliases=("open-jev",),
        ),
        _family(
            "openjev-27b",
            OPEN_JEV_27B,
            description="Open-Jev 27B-v1.1: scores every candidate answer on its own.",
        ),
    ]
