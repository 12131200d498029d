"""Which way was the fastest for a product, kept for later starts."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import triton

from system1_cuda import gemm_stream
from system1_cuda.build import kernel_cache
from system1_cuda.gemm import KINDS, Product, Way

_log = logging.getLogger(__name__)
_FORMAT = 1

# Device index, M, N, K, operands' dtype, output's dtype, whether there is a bias.
Key = tuple[int, int, int, int, torch.dtype, torch.dtype, bool]


def key_of(product: Product) -> Key:
    rows, depth = product.x.shape
    return (
        product.x.get_device(), rows, product.weight.shape[0], depth,
        product.x.dtype, product.dtype, product.bias is not None,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Choice:
    """The fastest way, and microseconds of it and of torch's own where they were measured."""

    way: Way
    microseconds: float
    torch_microseconds: float


def choices_file() -> Path:
    return kernel_cache() / "linear-choices.json"


def circumstances(device: int) -> str:
    """What a choice depends on beside the product: device, libraries, our kernel."""
    kernel = hashlib.sha256(Path(gemm_stream.__file__).read_bytes()).hexdigest()[:12]
    version = torch.ops.system1.gemm_version.default()
    return (
        f"{torch.cuda.get_device_name(device)} | torch {torch.__version__} | cuBLASLt {version} | "
        f"triton {triton.__version__} | {kernel}"
    )


def read_choices(file: Path, device: int, place: str) -> dict[Key, Choice]:
    """The choices of `place` as those of a device; a broken file is ignored with a warning."""
    try:
        content = json.loads(file.read_text())
        if content["format"] != _FORMAT:
            raise ValueError(f"format {content['format']}, expected {_FORMAT}")
        entries: Mapping[str, Any] = content["places"].get(place, {})
        return {_key(name, device): _choice(entry) for name, entry in entries.items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        _log.warning("%s is not read, choices of products are made again: %r", file, error)
        return {}


def write_choices(file: Path, place: str, choices: Mapping[Key, Choice]) -> None:
    """Make these the choices of `place`, beside those of others; the file changes in one step.

    Of two processes that write at once the later one wins; what is lost is measured again.
    """
    try:
        content = json.loads(file.read_text())
        places = dict(content["places"]) if content["format"] == _FORMAT else {}
    except (OSError, ValueError, KeyError, TypeError):
        places = {}
    entries = {
        _name(key): {
            "kind": choice.way.kind,
            "settings": list(choice.way.settings),
            "microseconds": round(choice.microseconds, 2),
            "torch_microseconds": round(choice.torch_microseconds, 2),
        }
        for key, choice in choices.items()
    }
    places[place] = entries
    file.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=file.parent, delete=False) as scratch:
        json.dump({"format": _FORMAT, "places": places}, scratch)
    os.replace(scratch.name, file)


def _name(key: Key) -> str:
    _, *sizes, operands, out, has_bias = key
    dtypes = (str(dtype).removeprefix("torch.") for dtype in (operands, out))
    return " ".join([*map(str, sizes), *dtypes, "bias" if has_bias else "plain"])


def _key(name: str, device: int) -> Key:
    rows, columns, depth, operands, out, bias = name.split(" ")
    dtypes = [getattr(torch, dtype) for dtype in (operands, out)]
    if bias not in ("bias", "plain") or not all(isinstance(d, torch.dtype) for d in dtypes):
        raise ValueError(f"no product is called {name!r}")
    return device, int(rows), int(columns), int(depth), dtypes[0], dtypes[1], bias == "bias"


def _choice(entry: Mapping[str, Any]) -> Choice:
    way = Way(entry["kind"], tuple(int(number) for number in entry["settings"]))
    if way.kind not in KINDS:
        raise ValueError(f"no way is called {way.kind!r}")
    return Choice(way, float(entry["microseconds"]), float(entry["torch_microseconds"]))
