"""The hook: OmniJev over the Qwen3.5 backbone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from models_omnijev.pins import BASE, OMNIJEV
from system1_core.family import Load, ModelFamily, Option
from system1_core.hookspecs import hookimpl

if TYPE_CHECKING:
    from system1_core.executor import Executor
    from system1_core.processor import Processor
    from system1_core.wire.dialect import Dialect

# 64 x 48 pixels, one colour.
_PICTURE = (
    "iVBORw0KGgoAAAANSUhEUgAAAEAAAAAwCAIAAAAuKetIAAAARUlEQVR42u3PAQkAMAgAMH0aM5nOqG8hCFuDZfXE"
    "ZS+OExAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQENjzAeuVAYLhFxV5AAAAAElFTkSuQmCC"
)
EXAMPLE = {
    "state": [
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{_PICTURE}"}},
        "Task: find the screen with the invoice.",
    ],
    "questions": {
        "next": {
            "type": "choice",
            "instructions": "Which operation comes next?",
            "criteria": {"click": None, "type text": None, "wait": "the page is still loading"},
        },
        "risk": {
            "type": "score",
            "instructions": "How irreversible is the next action?",
            "criteria": ["harmless", "needs care", "irreversible"],
        },
        "error": {"type": "noul", "instructions": "The screen shows an error dialog."},
    },
}


def _load_processor(load: Load) -> Processor:
    from models_omnijev.load import load_processor

    return load_processor(load)


def _load_executor(load: Load) -> Executor:
    from models_omnijev.load import load_executor

    return load_executor(load)


def _reference(options: Mapping[str, Any]) -> Dialect:
    from models_omnijev.reference import ReferenceDialect

    return ReferenceDialect()


def _export(load: Load, folder: Path) -> None:
    from models_omnijev.export import export

    export(load, folder)


@hookimpl
def system1_register_models() -> Iterable[ModelFamily]:
    return [
        ModelFamily(
            name="omnijev",
            description="OmniJev-4B v1.1: decisions about screenshots, pictures and videos.",
            aliases=("omnijev-4b-v1.1", "tinnel123/OmniJev"),
            load_processor=_load_processor,
            load_executor=_load_executor,
            checkpoints=(OMNIJEV, BASE),
            options=(
                Option(
                    name="base",
                    help="folder of Qwen3.5-4B, the base under the adapter",
                    parse=Path,
                ),
            ),
            example=EXAMPLE,
            accepts_images=True,
            framework="torch",
            reference=_reference,
            export=_export,
        )
    ]
