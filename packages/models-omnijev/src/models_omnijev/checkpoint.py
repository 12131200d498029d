"""Where the files are, what they are pinned to, and what `head_meta.json` says."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from models_omnijev.calibration import Calibration
from models_omnijev.pins import BASE, OMNIJEV
from system1_core.checkpoint import safe_join
from system1_core.errors import CheckpointError
from system1_core.family import Load
from system1_core.manifest import sha256_of

META = "head_meta.json"
MANIFEST = "release_manifest.json"
_FETCH_AGAIN = "fetch the file again"
_BIASED = ("noul",)
_TYPES = ("noul", "choice", "score")


@dataclass(frozen=True, slots=True)
class Folders:
    """Where the model is; `base` is None for a merged export, which holds everything."""

    checkpoint: Path
    base: Path | None

    @property
    def weights(self) -> Path:
        """The folder with `config.json` and the backbone's weights."""
        return self.base or self.checkpoint


def find_folders(load: Load) -> Folders:
    """The named folder or the pinned one; the base by option, beside the checkpoint, or pinned.

    A named folder is a checkpoint, an export, or holds a checkpoint as `checkpoint` and maybe its
    base as `base`. Raises CheckpointError for a folder that is none of these.
    """
    from models_qwen3_5.export import is_export

    named = load.folder
    base = load.options.get("base")
    if named is not None and is_export(named):
        if base is not None:
            raise CheckpointError(
                f"{named}: a merged export needs no base, but {base} was given; "
                "leave out the option base, or name the checkpoint"
            )
        return Folders(named, None)
    if named is not None and not (named / META).is_file():
        inside = named / "checkpoint"
        if not (inside / META).is_file():
            raise CheckpointError(
                f"{named}: found no {META}, neither here nor in checkpoint/, and no manifest of a "
                "finished export; name the folder of an OmniJev checkpoint or export it again"
            )
        if base is None and (named / "base").is_dir():
            base = named / "base"
        named = inside
    if named is not None and not (named / "adapter_config.json").is_file():
        raise CheckpointError(
            f"{named}: found neither an adapter nor the manifest of a finished export; "
            "export the model again, or fetch the checkpoint again"
        )
    checkpoint = named or load.fetch(OMNIJEV.name)
    return Folders(checkpoint, Path(base) if base is not None else load.fetch(BASE.name))


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadMeta:
    """What `head_meta.json` says about the heads."""

    is_softmax: bool
    calibration: Calibration


def read_meta(folder: Path) -> HeadMeta:
    """The flags and calibration of a checkpoint. Raises CheckpointError for what this is not."""
    file = folder / META
    try:
        values = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise CheckpointError(f"{file}: {error}; {_FETCH_AGAIN}") from error
    if not isinstance(values, dict):
        raise CheckpointError(f"{file}: is a {type(values).__name__}, expected an object")
    norm = values.get("norm", "sigmoid")
    if norm not in ("softmax", "sigmoid"):
        raise _fault(file, "norm", norm, '"softmax" or "sigmoid"')
    for flag in ("lm_feats", "ordinal"):
        if values.get(flag) is not True:
            raise _fault(file, flag, values.get(flag), "true: heads without it are not supported")
    calibration = Calibration(
        temperatures=_numbers(file, "temperatures", values, allowed=_TYPES, is_positive=True),
        biases=_numbers(file, "biases", values, allowed=_BIASED),
        default_temperature=_number(
            file, "temperature", values.get("temperature", 1.0), is_positive=True
        ),
    )
    return HeadMeta(is_softmax=norm == "softmax", calibration=calibration)


def check_manifest(folder: Path) -> None:
    """Prove a checkpoint's files by the release's own manifest, where the folder has it.

    Raises CheckpointError for another size or hash, and a name that leaves the folder.
    """
    file = folder / MANIFEST
    if not file.is_file():
        return
    try:
        values = json.loads(file.read_text(encoding="utf-8"))
        expected = {
            str(name): (int(entry["bytes"]), str(entry["sha256"]))
            for name, entry in values["files"].items()
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise CheckpointError(f"{file}: is no release manifest; {_FETCH_AGAIN}") from error
    for name, (size, sha256) in expected.items():
        path = safe_join(folder, name)
        if not path.is_file():
            raise CheckpointError(f"{path}: missing, named by {MANIFEST}; fetch it")
        if (found := path.stat().st_size) != size:
            raise CheckpointError(f"{path}: {found} bytes, expected {size}; {_FETCH_AGAIN}")
        if (digest := sha256_of(path)) != sha256:
            raise CheckpointError(
                f"{path}: SHA-256 is {digest}, expected {sha256} by {MANIFEST}; {_FETCH_AGAIN}"
            )


def _numbers(
    file: Path,
    key: str,
    values: Mapping[str, Any],
    *,
    allowed: tuple[str, ...],
    is_positive: bool = False,
) -> dict[str, float]:
    found = values.get(key) or {}
    if not isinstance(found, dict):
        raise _fault(file, key, found, "an object of numbers by question type")
    for name in found:
        if name not in allowed:
            raise _fault(file, f"{key}.{name}", found[name], f"only {', '.join(allowed)} there")
    return {
        name: _number(file, f"{key}.{name}", value, is_positive=is_positive)
        for name, value in found.items()
    }


def _number(file: Path, key: str, value: Any, *, is_positive: bool = False) -> float:
    is_number = type(value) in (int, float) and abs(value) < math.inf
    if not is_number or (is_positive and value <= 0):
        raise _fault(file, key, value, "a positive number" if is_positive else "a finite number")
    return float(value)


def _fault(file: Path, key: str, found: Any, expected: str) -> CheckpointError:
    return CheckpointError(f"{file}: {key} is {found!r}, expected {expected}; {_FETCH_AGAIN}")
