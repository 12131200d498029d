"""Merged checkpoints: written one tensor at a time, their manifest last, and checked at load."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Any, BinaryIO

import torch
from torch import Tensor

from models_qwen3_5.checkpoint import (
    EMBEDDING,
    HEAD,
    Parts,
    check_source,
    checkpoint_targets,
    make_models,
    text_prefix,
)
from models_qwen3_5.config import read_config
from system1_core.checkpoint import DOCUMENTS, safe_join
from system1_core.errors import CheckpointError
from system1_core.manifest import sha256_of
from system1_torch.loading import check_shapes
from system1_torch.safetensors_file import INDEX_SUFFIX, Safetensors

MANIFEST = "system1_export.json"
FORMAT = "system1-export/1"
_STEM = "model.safetensors"
# What the Hub's own tools write at most into one file.
_SHARD_BYTES = 5_000_000_000
_CODES = {torch.float32: "F32", torch.bfloat16: "BF16", torch.float16: "F16"}
_AGAIN = "export the model again into an empty folder, or copy the whole export anew"


@dataclass(frozen=True, slots=True, kw_only=True)
class Export:
    """What to write of a base checkpoint and its adapter.

    `parts` says which tensors, and what is merged, shortened or overwritten, in fp32; `dtype` is
    what they are cast to, once. `rename` gives a tensor's name in the export. `files` are written
    behind the weights, in their order. `kind` tells exports of families apart, and `details` is
    kept for the family in the manifest.
    """

    kind: str
    parts: Parts
    dtype: torch.dtype
    files: Mapping[str, bytes]
    details: Mapping[str, Any] = field(default_factory=dict)
    rename: Callable[[str], str] = lambda name: name
    shard_bytes: int = _SHARD_BYTES


@dataclass(frozen=True, slots=True)
class _Planned:
    """One tensor of the export: its names in both checkpoints and its shape."""

    source: str
    name: str
    shape: tuple[int, ...]


def write_export(base: Path, export: Export, out: Path) -> None:
    """Write the export of the checkpoint in `base` into the folder `out`.

    Beside one tensor of scratch nothing is held in memory. Until the manifest stands there, the
    folder is refused by `read_export`. Raises CheckpointError for a base that does not hold the
    tensors of its config, an adapter of another model, values that are not finite, or a full disk.
    """
    source = Safetensors.open(base)
    prefix = text_prefix(source)
    planned = _plan(base, source, export)
    size = torch.empty(0, dtype=export.dtype).element_size()
    _check_space(out, sum(prod(each.shape) for each in planned) * size)
    shards = _shards(planned, export.shard_bytes // size)
    digests: dict[str, dict[str, Any]] = {}
    weight_map: dict[str, str] = {}
    for number, shard in enumerate(shards, 1):
        file = _STEM
        if len(shards) > 1:
            file = f"model-{number:05}-of-{len(shards):05}.safetensors"
        values = (_value(source, each, export, prefix + EMBEDDING) for each in shard)
        with (out / file).open("wb") as stream:
            digests[file] = _write_shard(stream, shard, values, export.dtype)
        weight_map |= {each.name: file for each in shard}
    files = dict(export.files)
    if len(shards) > 1:
        total = sum(digest["bytes"] for digest in digests.values())
        index = {"metadata": {"total_size": total}, "weight_map": weight_map}
        files = {_STEM + INDEX_SUFFIX: _json(index), **files}
    for file, content in files.items():
        digests[file] = {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
        _write(out / file, content)
    manifest = {"format": FORMAT, "kind": export.kind, "details": dict(export.details)}
    _write(out / MANIFEST, _json({**manifest, "files": digests}))


def read_export(folder: Path, kind: str, *, weights: bool = True) -> Mapping[str, Any]:
    """The details of an export, its files proved by size and SHA-256.

    Without `weights` the large files are only measured, not hashed. Raises CheckpointError for a
    folder without a sound manifest of that kind, for a file that is missing, changed or added, and
    for a name that leaves the folder.
    """
    file = folder / MANIFEST
    content = _read_manifest(file)
    if content["kind"] != kind:
        raise CheckpointError(
            f"{file}: is an export of kind {content['kind']!r}, expected {kind!r}; "
            "serve it under the name of its own model"
        )
    for name, expected in content["files"].items():
        _check_file(folder, name, expected, hashed=weights or not name.endswith(".safetensors"))
    for path in sorted(folder.iterdir()):
        is_document = path.name.startswith(".") or any(path.match(kind) for kind in DOCUMENTS)
        if path.name not in content["files"] and path != file and not is_document:
            raise CheckpointError(
                f"{path}: is not part of this export by its {MANIFEST}; take it out of the folder"
            )
    details: Mapping[str, Any] = content["details"]
    return details


def is_export(folder: Path) -> bool:
    """Whether a folder has an export's manifest, sound or not."""
    return (folder / MANIFEST).is_file()


def _plan(base: Path, source: Safetensors, export: Export) -> list[_Planned]:
    """Every tensor of the export in the order of the base's files, all checked beforehand."""
    config = read_config(base)
    text, vision = make_models(config, export.parts, device="meta", dtype=export.dtype)
    targets = checkpoint_targets(text, vision, text_prefix(source))
    check_source(source, targets, export.parts, has_vision=vision is not None)
    tables = {name for name in targets if name.endswith((EMBEDDING, HEAD))}
    check_shapes(
        {name: source[name] for name in source if name in targets and name not in tables},
        {name: target for name, target in targets.items() if name not in tables},
        source.source,
    )
    for name, target in targets.items():
        found = source[name].shape if name in source else ()
        # Of a table, leading rows may be all that is kept.
        if name in tables and not (found[1:] == target.shape[1:] and found[0] >= target.shape[0]):
            raise CheckpointError(
                f"{source.source}: tensor {name!r}: found shape {list(found)}, expected at least "
                f"{list(target.shape)}; the weights do not belong to this config"
            )
        if source[name].dtype not in _CODES:
            expected = " or ".join(map(str, _CODES))
            raise CheckpointError(
                f"{source[name].file}: tensor {name!r}: found {source[name].dtype}, expected "
                f"{expected}; convert the checkpoint"
            )
    return [
        _Planned(name, export.rename(name), tuple(targets[name].shape))
        for name in source
        if name in targets
    ]


def _shards(planned: list[_Planned], most: int) -> list[list[_Planned]]:
    """Tensors in order, each file filled up to `most` numbers; a larger tensor stands alone."""
    shards: list[list[_Planned]] = []
    room = 0
    for each in planned:
        numbers = prod(each.shape)
        if not shards or numbers > room:
            shards.append([])
            room = most
        shards[-1].append(each)
        room -= numbers
    return shards


def _value(source: Safetensors, each: _Planned, export: Export, embedding: str) -> Tensor:
    """A tensor as the export holds it."""
    parts = export.parts
    with source.mapped(each.source) as tensor:
        value = tensor[: each.shape[0]]
        if parts.adapter is not None:
            value = parts.adapter.merge(each.source, value, delta_dtype=parts.delta_dtype)
        value = value.to(export.dtype, copy=True)
        del tensor
    if each.source == embedding:
        for row, replacement in parts.rows.items():
            value[row].copy_(replacement)
    low, high = torch.aminmax(value)
    if not bool(torch.isfinite(low) & torch.isfinite(high)):
        raise CheckpointError(
            f"{source[each.source].file}: tensor {each.source!r}: values that are not finite in "
            f"{export.dtype} after the merge; fetch base and adapter again"
        )
    return value


def _write_shard(
    stream: BinaryIO, planned: list[_Planned], values: Iterator[Tensor], dtype: torch.dtype
) -> dict[str, Any]:
    """One safetensors file; its size and hash."""
    size = torch.empty(0, dtype=dtype).element_size()
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for each in planned:
        begin, end = end, end + prod(each.shape) * size
        header[each.name] = {
            "dtype": _CODES[dtype],
            "shape": each.shape,
            "data_offsets": [begin, end],
        }
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    digest = hashlib.sha256()
    for part in (len(text).to_bytes(8, "little"), text):
        digest.update(part)
        stream.write(part)
    for value in values:
        # bfloat16 has no NumPy type; bytes have one.
        part = memoryview(value.reshape(-1).view(torch.uint8).numpy())
        digest.update(part)
        stream.write(part)
    _flush(stream)
    return {"bytes": 8 + len(text) + end, "sha256": digest.hexdigest()}


def _write(path: Path, content: bytes) -> None:
    """In one step, and on the disk before the next file."""
    draft = path.with_name(f".{path.name}.draft")
    with draft.open("wb") as stream:
        stream.write(content)
        _flush(stream)
    os.replace(draft, path)


def _flush(stream: BinaryIO) -> None:
    stream.flush()
    os.fsync(stream.fileno())


def _check_space(out: Path, needed: int) -> None:
    free = shutil.disk_usage(out).free
    if needed > free:
        raise CheckpointError(
            f"{out}: the export takes {needed / 1e9:.1f} GB, the disk has {free / 1e9:.1f} GB "
            "left; name a folder on a larger disk"
        )


def _read_manifest(file: Path) -> dict[str, Any]:
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
        is_sound = (
            content["format"] == FORMAT
            and isinstance(content["kind"], str)
            and isinstance(content["details"], dict)
            and all(
                type(entry["bytes"]) is int and isinstance(entry["sha256"], str)
                for entry in content["files"].values()
            )
        )
    except FileNotFoundError as error:
        raise CheckpointError(
            f"{file}: missing, so the export was never finished or not copied whole; {_AGAIN}"
        ) from error
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        is_sound = False
    if not is_sound:
        raise CheckpointError(f"{file}: is no manifest of format {FORMAT!r}; {_AGAIN}")
    sound: dict[str, Any] = content
    return sound


def _check_file(folder: Path, name: str, expected: Mapping[str, Any], *, hashed: bool) -> None:
    path = safe_join(folder, name)
    if not path.is_file():
        raise CheckpointError(f"{path}: missing, named by {MANIFEST}; {_AGAIN}")
    if (size := path.stat().st_size) != expected["bytes"]:
        raise CheckpointError(f"{path}: {size} bytes, expected {expected['bytes']}; {_AGAIN}")
    if hashed and (found := sha256_of(path)) != expected["sha256"]:
        raise CheckpointError(
            f"{path}: SHA-256 is {found}, expected {expected['sha256']}; {_AGAIN}"
        )


def _json(value: Any) -> bytes:
    return (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode()
