"""The small files of a checkpoint, in the layout that a family's own loaders read."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save

from benchmarks_random_weights.sizes import SIZES, config_json
from benchmarks_random_weights.tokenizer import tokenizer_json

Files = dict[str, bytes]
_OPTION_MARKERS = ("<|opt|>", "<|/opt|>")
_OMNIJEV_ROWS = 248_079
_IMAGE = "<|vision_start|><|image_pad|><|vision_end|>"
# One turn after the other, pictures where they are; the assistant's thought stays open.
_TEMPLATE = (
    "{%- for message in messages -%}<|im_start|>{{ message.role }}\n"
    "{% if message.content is string %}{{ message.content }}{% else %}"
    "{%- for part in message.content -%}"
    "{%- if part.type == 'image' -%}" + _IMAGE + "{%- else -%}{{ part.text }}{%- endif -%}"
    "{%- endfor -%}{%- endif -%}<|im_end|>\n{% endfor -%}"
    "<|im_start|>assistant\n<think>\n"
    "{% if enable_thinking is defined and not enable_thinking %}\n</think>\n\n{% endif %}"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """What of a checkpoint is read: its size, the prefix of the decoder's names, tower and head."""

    size: str
    prefix: str
    vision: bool
    head: bool
    max_pixels: int = 16_777_216
    vocabulary: int | None = None
    more_tokens: tuple[str, ...] = field(default=())


LAYOUTS = {
    "openjev-27b-random": Layout(size="27B", prefix="", vision=False, head=False),
    "cuas1-4b-random": Layout(size="4B", prefix="model.language_model.", vision=True, head=True),
    "omnijev-4b-random": Layout(
        size="4B",
        prefix="model.language_model.",
        vision=True,
        head=True,
        vocabulary=_OMNIJEV_ROWS,
        more_tokens=_OPTION_MARKERS,
    ),
}


def write_files(name: str, folder: Path, *, tiny: bool = False, seed: int = 0) -> None:
    """Write everything but weights for a family; `tiny` makes it small enough for a CPU."""
    layout = LAYOUTS[name]
    size = SIZES[f"tiny {layout.size}" if tiny else layout.size]
    config = config_json(size, layout.vocabulary)
    rng = np.random.default_rng(seed)
    files: Files = {
        "config.json": _json(config),
        "tokenizer.json": tokenizer_json(layout.more_tokens),
        "chat_template.jinja": _TEMPLATE.encode(),
    }
    if layout.vision:
        files["preprocessor_config.json"] = _json(_image_processor(layout.max_pixels))
    marker = {"prefix": layout.prefix, "vision": layout.vision, "head": layout.head, "seed": seed}
    writers = {"openjev": _write_openjev, "cuas1": _write_cuas1, "omnijev": _write_omnijev}
    writers[name.split("-")[0]](folder, files, marker, size.hidden, rng)


def _write_openjev(
    folder: Path, files: Files, marker: dict[str, Any], hidden: int, rng: np.random.Generator
) -> None:
    """A merged export, which its loader takes without a manifest; ids are made up."""
    files["open_jev_export.json"] = _json(
        {
            "format": "open-jev-text-merged/1",
            "model_id": "random/weights",
            "base_revision": "0" * 40,
            "checkpoint_revision": "0" * 40,
            "temperature": 2.5343690298472983,
            "max_length": 4096,
            "chat_prefix": "<|im_start|>user\n",
            "chat_suffix": "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n",
            "head_weight": rng.normal(0, 2 * hidden**-0.5, hidden).tolist(),
            "head_bias": 0.0,
        }
    )
    _write(folder, files, marker)


def _write_cuas1(
    folder: Path, files: Files, marker: dict[str, Any], hidden: int, rng: np.random.Generator
) -> None:
    """An export of each modality; names tell tensors apart, so both have the same weights."""
    for modality in ("text", "multimodal"):
        inside = folder / modality
        inside.mkdir(exist_ok=True)
        shown = marker | {"vision": modality == "multimodal"}
        _write(inside, files, shown, kind=f"cuas1-{modality}")


def _write_omnijev(
    folder: Path, files: Files, marker: dict[str, Any], hidden: int, rng: np.random.Generator
) -> None:
    """An export: the heads beside the backbone, both drawn here because they are small."""
    inner, cuts = min(1024, 2 * hidden), min(512, hidden)
    option = _perceptrons(rng, hidden, {"opt": (inner, inner), "que": (inner, inner)})
    option |= _linear(rng, "score", inner, 1) | _linear(rng, "abstain", inner, 1)
    option |= _linear(rng, "feat", 6, inner) | _linear(rng, "feat_lin", 6, 1)
    option["log_tau"] = np.zeros(3, np.float32)
    levels = _perceptrons(rng, hidden, {"z": (cuts, 1), "cut": (cuts, 1)})
    files["head.safetensors"], files["ord.safetensors"] = save(option), save(levels)
    files["head_meta.json"] = _json({"norm": "softmax", "lm_feats": True, "ordinal": True})
    _write(folder, files, marker, kind="omnijev")


def _perceptrons(
    rng: np.random.Generator, width: int, parts: dict[str, tuple[int, int]]
) -> dict[str, np.ndarray]:
    found: dict[str, np.ndarray] = {}
    for name, (inner, outer) in parts.items():
        found |= _linear(rng, f"{name}.0", width, inner) | _linear(rng, f"{name}.2", inner, outer)
    return found


def _linear(rng: np.random.Generator, name: str, columns: int, rows: int) -> dict[str, np.ndarray]:
    weight = rng.normal(0, columns**-0.5, (rows, columns)).astype(np.float32)
    return {f"{name}.weight": weight, f"{name}.bias": np.zeros(rows, np.float32)}


def _image_processor(max_pixels: int) -> dict[str, Any]:
    return {
        "size": {"longest_edge": max_pixels, "shortest_edge": 65_536},
        "patch_size": 16,
        "temporal_patch_size": 2,
        "merge_size": 2,
        "image_mean": [0.5, 0.5, 0.5],
        "image_std": [0.5, 0.5, 0.5],
    }


def _write(folder: Path, files: Files, marker: dict[str, Any], kind: str | None = None) -> None:
    """The files, our marker, and with a kind the manifest that makes them an export."""
    for name, content in files.items():
        (folder / name).write_bytes(content)
    (folder / ".random_weights.json").write_bytes(_json(marker))
    if kind is not None:
        listed = {
            name: {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
            for name, content in files.items()
        }
        manifest = {"format": "system1-export/1", "kind": kind, "details": {}, "files": listed}
        (folder / "system1_export.json").write_bytes(_json(manifest))


def _json(values: Any) -> bytes:
    return (json.dumps(values, indent=1) + "\n").encode()
