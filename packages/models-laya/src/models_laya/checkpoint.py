"""Pinned checkpoints, where they lie in a folder, and their exact tensors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from models_laya.config import LayaConfig
from system1_core.checkpoint import Checkpoint
from system1_core.errors import CheckpointError

CONFIG_FILE = "rl_agent_config.json"
NAMES = ("english", "multilingual", "typed-decisions")
_PATTERNS = (CONFIG_FILE, "model.safetensors", "tokenizer/*", "encoder/*")

CHECKPOINTS = (
    Checkpoint(
        name="english",
        repo="convaiinnovations/laya",
        revision="55cf4c4ebb4ebe31b2550e8bdf3bd21b99753851",
        patterns=_PATTERNS,
        description="ModernBERT-large, 421M parameters, 846 MB",
    ),
    Checkpoint(
        name="multilingual",
        repo="convaiinnovations/laya-multilingual",
        revision="e4e9ddf21a7b1903b7acffd8814ad4307bf63a67",
        patterns=_PATTERNS,
        description="mmBERT-base, 322M parameters, about 680 MB",
    ),
    Checkpoint(
        name="typed-decisions",
        repo="convaiinnovations/laya-typed-decisions",
        revision="1a793eb568e6718f15941d08f85432581df534e3",
        patterns=_PATTERNS,
        description="ModernBERT-large, fine-tuned on four typed workflows",
    ),
)


def find_checkpoints(folder: Path) -> dict[str, Path]:
    """Checkpoint folders by name: the hub's layout, a parent of several, or a single one.

    The hub's layout is English at the root and the others in folders of their names. A single
    checkpoint, and the folders under a parent, are named by their folder: "multiling…" and
    "…decision…" say what they are, anything else is English. Raises CheckpointError.
    """
    if not folder.is_dir():
        raise CheckpointError(f"{folder}: no such folder; name one that holds a LAYA checkpoint")
    below = {child for child in folder.iterdir() if (child / CONFIG_FILE).is_file()}
    if (folder / CONFIG_FILE).is_file():
        others = {name: folder / name for name in NAMES[1:] if folder / name in below}
        return {"english": folder, **others} if others else {_name_of(folder): folder}
    found: dict[str, Path] = {}
    for child in sorted(below):
        name = _name_of(child)
        if name in found:
            raise CheckpointError(
                f"{folder}: both {found[name].name!r} and {child.name!r} would be {name!r}; "
                f"name the folders {', '.join(NAMES)}"
            )
        found[name] = child
    if not found:
        raise CheckpointError(
            f"{folder}: no {CONFIG_FILE} in it or in a folder below it; "
            "name a folder that holds a LAYA checkpoint"
        )
    return {name: found[name] for name in NAMES if name in found}


def _name_of(folder: Path) -> str:
    text = folder.resolve().name.lower()
    if "multiling" in text:
        return "multilingual"
    return "typed-decisions" if "decision" in text else "english"


def tensor_shapes(config: LayaConfig) -> dict[str, tuple[int, ...]]:
    """Every tensor a checkpoint must hold, by name: 206 for English, 170 for multilingual."""
    return {
        **dict(_encoder_shapes(config)),
        **dict(_head_shapes(config)),
    }


def _encoder_shapes(config: LayaConfig) -> Iterator[tuple[str, tuple[int, ...]]]:
    encoder = config.encoder
    width, inner = encoder.hidden_size, encoder.intermediate_size
    yield "encoder.embeddings.tok_embeddings.weight", (encoder.vocab_size, width)
    yield "encoder.embeddings.norm.weight", (width,)
    for index in range(encoder.num_hidden_layers):
        layer = f"encoder.layers.{index}"
        if index > 0:
            yield f"{layer}.attn_norm.weight", (width,)
        yield f"{layer}.attn.Wqkv.weight", (3 * width, width)
        yield f"{layer}.attn.Wo.weight", (width, width)
        yield f"{layer}.mlp_norm.weight", (width,)
        yield f"{layer}.mlp.Wi.weight", (2 * inner, width)
        yield f"{layer}.mlp.Wo.weight", (width, inner)
    yield "encoder.final_norm.weight", (width,)


def _head_shapes(config: LayaConfig) -> Iterator[tuple[str, tuple[int, ...]]]:
    width = config.encoder.hidden_size
    with_bias: dict[str, tuple[int, ...]] = {
        "scorer.0": (width,),
        "scorer.1": (width, width),
        "scorer.3": (1, width),
        "act_head.0": (256, width + 4),
        "act_head.2": (config.num_actions, 256),
    }
    for index in range(config.head_layers):
        layer = f"head.layers.{index}"
        yield f"{layer}.self_attn.in_proj_weight", (3 * width, width)
        yield f"{layer}.self_attn.in_proj_bias", (3 * width,)
        with_bias |= {
            f"{layer}.norm1": (width,),
            f"{layer}.norm2": (width,),
            f"{layer}.self_attn.out_proj": (width, width),
            f"{layer}.linear1": (4 * width, width),
            f"{layer}.linear2": (width, 4 * width),
        }
    for name, shape in with_bias.items():
        yield f"{name}.weight", shape
        yield f"{name}.bias", shape[:1]
    yield "type_emb.weight", (3, width)
    yield "temperature", (3,)


def missing_parts(found: Mapping[str, object]) -> list[str]:
    """Prefixes of the four parts that no tensor of `found` has."""
    parts = ("encoder.", "type_emb.", "scorer.", "act_head.")
    return [part for part in parts if not any(name.startswith(part) for name in found)]
