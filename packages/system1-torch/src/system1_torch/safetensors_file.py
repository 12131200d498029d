"""Safetensors files, checked whole before use and mapped one tensor at a time."""

from __future__ import annotations

import json
import mmap
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import torch

from system1_core.errors import CheckpointError

FETCH_AGAIN = "fetch the file again"
INDEX_SUFFIX = ".index.json"
# The format's own limit on a header.
_MAX_HEADER_BYTES = 100_000_000
_DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}


@dataclass(frozen=True, slots=True)
class Entry:
    """One tensor in a file: where its bytes are, counted from the start of the file."""

    file: Path
    dtype: torch.dtype
    shape: tuple[int, ...]
    begin: int
    end: int


class Safetensors(Mapping[str, Entry]):
    """Every tensor of one file or of a sharded checkpoint, by name.

    Raises CheckpointError where a file is truncated, an index and its shards disagree, a name
    comes twice, or a shard lies outside the folder.
    """

    def __init__(self, entries: Mapping[str, Entry], source: Path) -> None:
        self._entries = dict(entries)
        self.source = source

    @classmethod
    def open(cls, path: Path, stem: str = "model.safetensors") -> Safetensors:
        """The tensors of a file, or of `stem` or its shards in a folder."""
        path = Path(path)
        if path.is_file():
            return cls(read_header(path), path)
        index = path / (stem + INDEX_SUFFIX)
        if index.is_file():
            return cls(_read_shards(index), index)
        file = path / stem
        if not file.is_file():
            raise CheckpointError(
                f"{path}: found neither {stem} nor {stem}{INDEX_SUFFIX}; "
                "name the folder that holds the weights"
            )
        return cls(read_header(file), file)

    def __getitem__(self, name: str) -> Entry:
        return self._entries[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    @contextmanager
    def mapped(self, name: str) -> Iterator[torch.Tensor]:
        """The tensor on the CPU as the file holds it; only valid inside the `with`.

        Only this tensor's pages are mapped, and they leave the process at the end. Drop every
        view before that.
        """
        entry = self._entries[name]
        if entry.begin == entry.end:
            yield torch.empty(entry.shape, dtype=entry.dtype)
            return
        start = entry.begin - entry.begin % mmap.ALLOCATIONGRANULARITY
        with entry.file.open("rb") as file:
            # A private writable mapping, because torch warns about read-only memory.
            pages = mmap.mmap(
                file.fileno(), entry.end - start, offset=start, access=mmap.ACCESS_COPY
            )
        if hasattr(mmap, "MADV_SEQUENTIAL"):
            pages.madvise(mmap.MADV_SEQUENTIAL)
        buffer = memoryview(pages)[entry.begin - start :]
        flat = torch.frombuffer(buffer, dtype=entry.dtype)
        try:
            yield flat.view(entry.shape)
        finally:
            # The pages unmap when the last view of them goes; closing early would be an error.
            del flat, buffer, pages


def read_header(file: Path) -> dict[str, Entry]:
    """The entries of one file, in the order of their bytes.

    Raises CheckpointError unless the header is sound and the tensors fill the file exactly.
    """
    size = file.stat().st_size
    with file.open("rb") as stream:
        length = int.from_bytes(stream.read(8), "little")
        if size < 8 or length > min(size - 8, _MAX_HEADER_BYTES):
            raise CheckpointError(
                f"{file}: {size} bytes, too few for its header of {length} bytes; {FETCH_AGAIN}"
            )
        header = _parse_header(file, stream.read(length))
    entries = {
        name: _make_entry(file, name, fields, 8 + length)
        for name, fields in header.items()
        if name != "__metadata__"
    }
    return _check_layout(file, entries, 8 + length, size)


def _parse_header(file: Path, text: bytes) -> dict[str, Any]:
    def without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        names = [name for name, _ in pairs]
        if len(set(names)) != len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise ValueError(f"{twice!r} comes twice")
        return dict(pairs)

    try:
        header = json.loads(text.decode(), object_pairs_hook=without_duplicates)
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{file}: header is not valid: {error}; {FETCH_AGAIN}") from error
    if not isinstance(header, dict):
        raise CheckpointError(f"{file}: header is a {type(header).__name__}; {FETCH_AGAIN}")
    return header


def _make_entry(file: Path, name: str, fields: Any, data_begin: int) -> Entry:
    try:
        code, shape, (begin, end) = fields["dtype"], fields["shape"], fields["data_offsets"]
        sizes = [*shape, begin, end]
        is_sound = all(type(size) is int and size >= 0 for size in sizes)
    except (KeyError, TypeError, ValueError):
        is_sound = False
    if not is_sound:
        raise CheckpointError(f"{file}: tensor {name!r}: malformed entry {fields}; {FETCH_AGAIN}")
    if code not in _DTYPES:
        known = ", ".join(_DTYPES)
        raise CheckpointError(
            f"{file}: tensor {name!r}: found dtype {code!r}, expected one of {known}; "
            "convert the checkpoint"
        )
    expected = prod(shape) * _DTYPES[code].itemsize
    if end - begin != expected:
        raise CheckpointError(
            f"{file}: tensor {name!r}: {end - begin} bytes, expected {expected} for "
            f"{code} {shape}; {FETCH_AGAIN}"
        )
    return Entry(file, _DTYPES[code], tuple(shape), data_begin + begin, data_begin + end)


def _check_layout(file: Path, entries: dict[str, Entry], begin: int, size: int) -> dict[str, Entry]:
    """Tensors must follow each other without hole or overlap up to the end of the file."""
    ordered = dict(sorted(entries.items(), key=lambda item: (item[1].begin, item[1].end)))
    for name, entry in ordered.items():
        if entry.begin != begin:
            raise CheckpointError(
                f"{file}: tensor {name!r}: begins at byte {entry.begin}, expected {begin}; "
                f"{FETCH_AGAIN}"
            )
        begin = entry.end
    if begin != size:
        raise CheckpointError(
            f"{file}: {size} bytes, expected {begin} by its header; {FETCH_AGAIN}"
        )
    return ordered


def _read_shards(index: Path) -> dict[str, Entry]:
    """The entries of every shard an index names; index and shards must agree exactly."""
    try:
        weight_map = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
        shards = sorted(set(weight_map.values()))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(
            f"{index}: expected an object with a weight_map: {error!r}; {FETCH_AGAIN}"
        ) from error
    entries: dict[str, Entry] = {}
    for shard in shards:
        for name, entry in read_header(_shard_path(index, shard)).items():
            if weight_map.get(name) != shard:
                listed = weight_map.get(name, "no shard")
                raise CheckpointError(
                    f"{entry.file}: tensor {name!r}: the index lists it in {listed}; {FETCH_AGAIN}"
                )
            entries[name] = entry
    missing = sorted(set(weight_map) - set(entries))
    if missing:
        raise CheckpointError(
            f"{index}: {len(missing)} listed tensors are in no shard, first {missing[0]!r} in "
            f"{weight_map[missing[0]]}; {FETCH_AGAIN}"
        )
    return entries


def _shard_path(index: Path, shard: Any) -> Path:
    """A shard lies beside its index; anything that names another folder is refused."""
    if not isinstance(shard, str) or shard in {"", ".", ".."} or set(shard) & set("/\\:\0"):
        raise CheckpointError(
            f"{index}: shard {shard!r} is not the name of a file in this folder; {FETCH_AGAIN}"
        )
    path = index.parent / shard
    if not path.is_file():
        raise CheckpointError(f"{path}: missing, named by {index.name}; fetch it")
    return path
