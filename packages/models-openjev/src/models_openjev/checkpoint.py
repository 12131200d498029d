"""Both layouts on disk: a package beside its base, and the merged export."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeGuard

from models_openjev.identity import NO_REVISION, Published, find_published
from models_qwen3_5.chat import ChatTemplate
from system1_core.errors import CheckpointError
from system1_core.family import Load

MERGED_FILE = "open_jev_export.json"
MERGED_FORMAT = "open-jev-text-merged/1"
METHOD = "independent_candidate_lora_nll_brier"
MAX_LENGTH = 16_384
_PACKAGE_FILE = "model.json"
# Where the published repositories keep the package.
_PACKAGE_FOLDER = Path("package", "checkpoint")
_MARKER = "user's turn"


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """What is served: `folder` holds the head, `base` weights and tokenizer.

    They are one folder for a merged export. `prefix` and `suffix` are the chat text around a
    prompt, `export` the content of a merged export's marker.
    """

    folder: Path
    base: Path
    model_id: str
    base_revision: str
    checkpoint_revision: str
    temperature: float
    max_length: int
    prefix: str
    suffix: str
    published: Published | None
    export: dict[str, Any] | None = None
    lora_rank: int = 0

    @property
    def is_merged(self) -> bool:
        return self.export is not None


def open_source(load: Load, default: Published) -> Source:
    """The checkpoint that `load` names, `default` where it names no folder.

    Reads no weights. Raises CheckpointError for a folder that is neither layout, that is not
    whole, or, with `openjev.unknown=refuse`, that is none of the published checkpoints.
    """
    folder = load.folder or load.fetch(default.name)
    if (folder / MERGED_FILE).is_file():
        return _open_merged(folder, load)
    if (folder / _PACKAGE_FOLDER / _PACKAGE_FILE).is_file():
        folder = folder / _PACKAGE_FOLDER
    if (folder / _PACKAGE_FILE).is_file():
        return _open_package(folder, load)
    raise CheckpointError(
        f"{folder}: found neither {_PACKAGE_FILE} of a package nor {MERGED_FILE} of a merged "
        "export, which is written last: an export without it was never finished; name the folder "
        "of an Open-Jev package, or export again"
    )


def _open_package(folder: Path, load: Load) -> Source:
    file = folder / _PACKAGE_FILE
    values = read_json(file)
    if values.get("method") != METHOD:
        raise _fault(file, values, "method", repr(METHOD))
    scale_file = folder / "temperature.json"
    temperature = _positive(scale_file, read_json(scale_file), "temperature")
    model_id = _text(file, values, "model_id")
    base_revision = _revision(file, values, "revision")
    identity = {
        "model_id": model_id,
        "base_revision": base_revision,
        "temperature": temperature,
    }
    published = find_published(file, identity, is_allowed=_is_unknown_allowed(load))
    base = _base_of(load, published)
    prefix, suffix = chat_wrapping(base)
    return Source(
        folder=folder,
        base=base,
        model_id=model_id,
        base_revision=base_revision,
        checkpoint_revision=published.checkpoint_revision if published else NO_REVISION,
        temperature=temperature,
        max_length=_length(file, values),
        prefix=prefix,
        suffix=suffix,
        published=published,
        lora_rank=_integer(file, values, "lora_rank"),
    )


def _open_merged(folder: Path, load: Load) -> Source:
    file = folder / MERGED_FILE
    values = read_json(file)
    if values.get("format") != MERGED_FORMAT:
        raise _fault(file, values, "format", repr(MERGED_FORMAT))
    identity = {
        "model_id": _text(file, values, "model_id"),
        "base_revision": _revision(file, values, "base_revision"),
        "checkpoint_revision": _revision(file, values, "checkpoint_revision"),
    }
    published = find_published(file, identity, is_allowed=_is_unknown_allowed(load))
    return Source(
        folder=folder,
        base=folder,
        model_id=identity["model_id"],
        base_revision=identity["base_revision"],
        checkpoint_revision=identity["checkpoint_revision"],
        temperature=_positive(file, values, "temperature"),
        max_length=_length(file, {"max_length": 4096} | values),
        prefix=_text(file, values, "chat_prefix"),
        suffix=_text(file, values, "chat_suffix"),
        published=published,
        export=values,
    )


def _is_unknown_allowed(load: Load) -> bool:
    return load.options.get("unknown", "allow") == "allow"


def _base_of(load: Load, published: Published | None) -> Path:
    """The folder of base weights: the option's, else the pinned one."""
    if named := load.options.get("base"):
        folder = Path(named).expanduser()
        if not folder.is_dir():
            raise CheckpointError(
                f"--option {load.family}.base: there is no folder {named!r}; name the folder of "
                "the base weights"
            )
        return folder
    if published is None:
        raise CheckpointError(
            f"{load.folder}: an adapter without its base; name it with "
            f"--option {load.family}.base=FOLDER"
        )
    return load.fetch(published.base_name)


def chat_wrapping(folder: Path) -> tuple[str, str]:
    """What a checkpoint's chat template writes around one user's turn, thinking off."""
    template = ChatTemplate.load(folder)
    messages = [{"role": "user", "content": _MARKER}]
    text = template.render(messages, enable_thinking=False)
    if text.count(_MARKER) != 1:
        raise CheckpointError(
            f"{template.file}: shows a user's turn {text.count(_MARKER)} times in {text[-200:]!r}; "
            "fetch the template of this base"
        )
    prefix, suffix = text.split(_MARKER)
    return prefix, suffix


def read_json(file: Path) -> dict[str, Any]:
    """The object in a small file of the checkpoint. Raises CheckpointError."""
    try:
        values = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise CheckpointError(f"{file}: missing; fetch the checkpoint again") from error
    except (OSError, ValueError, RecursionError) as error:
        raise CheckpointError(f"{file}: is no JSON: {error}; fetch the file again") from error
    if not isinstance(values, dict):
        raise CheckpointError(
            f"{file}: is a {type(values).__name__}, expected an object; fetch the file again"
        )
    return values


def _fault(file: Path, values: dict[str, Any], key: str, expected: str) -> CheckpointError:
    found = repr(values[key])[:100] if key in values else "missing"
    return CheckpointError(
        f"{file}: {key} is {found}, expected {expected}; fetch the file again, or name the folder "
        "of an Open-Jev checkpoint"
    )


def _text(file: Path, values: dict[str, Any], key: str) -> str:
    if not isinstance(values.get(key), str) or not values[key]:
        raise _fault(file, values, key, "a text")
    value: str = values[key]
    return value


def _revision(file: Path, values: dict[str, Any], key: str) -> str:
    value = _text(file, values, key)
    if len(value) != 40 or set(value) - set("0123456789abcdef"):
        raise _fault(file, values, key, "a commit hash of 40 lower-case hex digits")
    return value


def _positive(file: Path, values: dict[str, Any], key: str) -> float:
    value = values.get(key)
    if not is_number(value) or value <= 0:
        raise _fault(file, values, key, "a number above 0")
    return float(value)


def _integer(file: Path, values: dict[str, Any], key: str) -> int:
    value = values.get(key)
    if type(value) is not int or value < 1:
        raise _fault(file, values, key, "a positive integer")
    return value


def _length(file: Path, values: dict[str, Any]) -> int:
    value = _integer(file, values, "max_length")
    if value > MAX_LENGTH:
        raise _fault(file, values, "max_length", f"an integer from 1 to {MAX_LENGTH}")
    return value


def is_number(value: Any) -> TypeGuard[int | float]:
    """Whether a JSON value is a finite number."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:
        return False
