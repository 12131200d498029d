"""The hook: Cua-S1 with both adapters, and each adapter on its own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from models_qwen3_5.plugin import QWEN3_5_4B
from system1_core.checkpoint import Checkpoint
from system1_core.family import Load, ModelFamily, Option
from system1_core.hookspecs import hookimpl

if TYPE_CHECKING:
    from system1_core.executor import Executor
    from system1_core.processor import Processor
    from system1_core.wire.dialect import Dialect

_REPO = "cua-ai/cua-s1-4b-0.2"
_REVISION = "16818868b0cc7813808aae4e87b417657046ab79"
_SHA256 = {
    "text": "9b59c5aed96171a50b26526613766bbf44347a5c7af70f81efe6bcc6e9dbfb0e",
    "multimodal": "38ecd5a9191a436c1739db29104517f0aff4c70d0736d9cd810d3d49cfd652ea",
}
_FILES = ("adapter_config.json", "adapter_model.safetensors")
_ALIASES = ("cua-s1-4b-0.2", _REPO)
TEXT_EXAMPLE = {
    "state": "Dialog: Delete 3 files permanently? Buttons: Delete, Cancel",
    "questions": {
        "action": {
            "type": "choice",
            "instructions": "Keep the files.",
            "criteria": {"delete": "Click Delete", "cancel": "Click Cancel"},
        }
    },
}
# A white picture of 224 x 224.
WHITE_PNG = (
    "iVBORw0KGgoAAAANSUhEUgAAAOAAAADgAQAAAAAyVldMAAAALElEQVR42u3JsQ0AAAgDoOr/P+tu4gewUpNfR0op"
    "pZRSSimllFJKKaWUUh4LlcICv7uN4O8AAAAASUVORK5CYII="
)
IMAGE_EXAMPLE = {
    "state": {"image": f"data:image/png;base64,{WHITE_PNG}"},
    "questions": {
        "action": {
            "type": "choice",
            "instructions": "Continue",
            "criteria": {"continue": "Continue", "cancel": "Cancel"},
        }
    },
}


def _folder(text: str) -> Path:
    path = Path(text).expanduser()
    if not path.is_dir():
        raise ValueError(f"there is no folder {text!r}; name that of Qwen3.5-4B")
    return path.resolve()


def _split_rule(text: str) -> str:
    if text not in ("marks", "no-marks"):
        raise ValueError("expected marks or no-marks")
    return text


_OPTIONS = (
    Option(
        name="base",
        help="folder of Qwen/Qwen3.5-4B, the base of the adapters; else its pinned revision",
        parse=_folder,
    ),
    Option(
        name="split",
        help="how words are split: marks (the Hub's file) or no-marks (Transformers' class); "
        "else as the base's tokenizer.json says",
        parse=_split_rule,
    ),
)


def _load_processor(load: Load) -> Processor:
    from models_cuas1.load import load_processor

    return load_processor(load)


def _load_executor(load: Load) -> Executor:
    from models_cuas1.load import load_executor

    return load_executor(load)


def _export(load: Load, out: Path) -> None:
    from models_cuas1.load import export

    export(load, out)


def _adapters(*modalities: str) -> Checkpoint:
    """One adapter in its own folder, or both below the repository's root."""
    if len(modalities) == 1:
        (modality,) = modalities
        return Checkpoint(
            name=f"cua-s1-4b-0.2-{modality}",
            repo=_REPO,
            revision=_REVISION,
            patterns=_FILES,
            subfolder=modality,
            sha256={"adapter_model.safetensors": _SHA256[modality]},
            description=f"the {modality} adapter of Cua-S1 4B 0.2",
        )
    return Checkpoint(
        name="cua-s1-4b-0.2",
        repo=_REPO,
        revision=_REVISION,
        patterns=tuple(f"{modality}/{file}" for modality in modalities for file in _FILES),
        sha256={f"{m}/adapter_model.safetensors": _SHA256[m] for m in modalities},
        description="both adapters of Cua-S1 4B 0.2",
    )


def _family(
    name: str, description: str, example: Mapping[str, Any], *modalities: str
) -> ModelFamily:
    only = modalities[0] if len(modalities) == 1 else None

    def reference(options: Mapping[str, Any]) -> Dialect:
        from models_cuas1.reference import ReferenceDialect

        return ReferenceDialect(only)

    return ModelFamily(
        name=name,
        description=f"{description}; choice of 1 to 26 options only",
        load_processor=_load_processor,
        load_executor=_load_executor,
        aliases=_ALIASES if only is None else (*_ALIASES, f"{_REPO}@{_REVISION}:{only}"),
        checkpoints=(_adapters(*modalities), QWEN3_5_4B),
        options=_OPTIONS,
        example=example,
        question_types=("choice",),
        accepts_images="multimodal" in modalities,
        framework="torch",
        reference=reference,
        export=_export,
    )


@hookimpl
def system1_register_models() -> Iterable[ModelFamily]:
    both = "Cua-S1 4B: the next computer action, from a screen's text or its picture"
    text = "Cua-S1 4B text: the next computer action from a screen's text"
    image = "Cua-S1 4B multimodal: the next computer action from a picture of the screen"
    return [
        _family("cuas1", both, TEXT_EXAMPLE, "text", "multimodal"),
        _family("cuas1-text", text, TEXT_EXAMPLE, "text"),
        _family("cuas1-multimodal", image, IMAGE_EXAMPLE, "multimodal"),
    ]
