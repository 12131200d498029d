"""The published checkpoints, and the check that a folder holds what it says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from models_qwen3_5.config import TextConfig
from system1_core.checkpoint import Checkpoint
from system1_core.errors import CheckpointError

# What stands for a revision that nothing tells.
NO_REVISION = "0" * 40
# The same in every published size; other values would be another network.
_FIXED = {
    "head_dim": 256,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "linear_conv_kernel_dim": 4,
    "rotary_dim": 64,
    "mrope_section": (11, 11, 10),
}
_VOCABULARY = 248_320


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """One published checkpoint; `sizes` are those of its base's config.

    A package does not tell its own revision. Its temperature, fitted to 16 digits, does.
    """

    name: str
    model_id: str
    repo: str
    base_revision: str
    checkpoint_revision: str
    temperature: float
    sizes: dict[str, int]

    @property
    def base_name(self) -> str:
        """The name under which its base is pulled."""
        return f"{self.name}-base"

    def checkpoints(self) -> tuple[Checkpoint, Checkpoint]:
        """The package and its base, to pull."""
        package = Checkpoint(
            name=self.name,
            repo=self.repo,
            revision=self.checkpoint_revision,
            subfolder="package/checkpoint",
            patterns=("model.json", "temperature.json", "head.pt", "adapter/adapter_*"),
            description="adapter, head and temperature",
        )
        base = Checkpoint(
            name=self.base_name,
            repo=self.model_id,
            revision=self.base_revision,
            patterns=(
                "config.json",
                "tokenizer.json",
                "tokenizer_config.json",
                "chat_template.jinja",
                "model.safetensors.index.json",
                "model*.safetensors",
            ),
            description=f"the base of {self.name}",
        )
        return package, base


OPEN_JEV_9B = Published(
    name="open-jev-9b",
    model_id="Qwen/Qwen3.5-9B",
    repo="ZefanCai/Open-Jev-9B",
    base_revision="c202236235762e1c871ad0ccb60c8ee5ba337b9a",
    checkpoint_revision="47e966881e489511c0c7f5633a9e1960a676a551",
    temperature=1.8969118766347646,
    sizes={
        "hidden_size": 4096,
        "intermediate_size": 12288,
        "num_hidden_layers": 32,
        "num_attention_heads": 16,
        "num_key_value_heads": 4,
        "linear_num_key_heads": 16,
        "linear_num_value_heads": 32,
    },
)
OPEN_JEV_27B = Published(
    name="open-jev-27b-v1.1",
    model_id="Qwen/Qwen3.8-27B",
    repo="ZefanCai/Open-Jev-27B-v1.1",
    base_revision="1d4bf0f2ff6012fd82039f2fa52739d0dd7c60c0",
    checkpoint_revision="28cf73067d5b337860bbef3c85b8b82ba8730956",
    temperature=2.5343690298472983,
    sizes={
        "hidden_size": 5120,
        "intermediate_size": 17408,
        "num_hidden_layers": 64,
        "num_attention_heads": 24,
        "num_key_value_heads": 4,
        "linear_num_key_heads": 16,
        "linear_num_value_heads": 48,
    },
)
PUBLISHED = (OPEN_JEV_9B, OPEN_JEV_27B)


def find_published(
    file: Path,
    found: Mapping[str, object],
    *,
    is_allowed: bool,
) -> Published | None:
    """The checkpoint whose facts all equal `found`, keyed as `Published` names them.

    None for another one where `is_allowed`; else raises CheckpointError.
    """
    for each in PUBLISHED:
        if all(getattr(each, name) == value for name, value in found.items()):
            return each
    if is_allowed:
        return None
    listed = ", ".join(f"{name} {value!r}" for name, value in found.items())
    known = " and ".join(each.name for each in PUBLISHED)
    raise CheckpointError(
        f"{file}: {listed} is none of the published checkpoints, which are {known}; fetch one of "
        "them, or serve this one as it is, without --option openjev.unknown=refuse"
    )


def check_network(config: TextConfig, published: Published | None, file: Path) -> None:
    """Raise CheckpointError for a config of another network, or of another published size."""
    expected: dict[str, object] = dict(_FIXED)
    expected["layer_types"] = tuple(
        "linear_attention" if (layer + 1) % 4 else "full_attention"
        for layer in range(config.num_hidden_layers)
    )
    if published is not None:
        expected |= published.sizes | {"vocab_size": _VOCABULARY}
    for name, value in expected.items():
        if (found := getattr(config, name)) != value:
            name_of = published.model_id if published else "Open-Jev"
            raise CheckpointError(
                f"{file}: {name} is {found!r}, expected {value!r} for {name_of}; "
                "name the folder of the base that this checkpoint was trained on"
            )


def adapted_modules(config: TextConfig) -> int:
    """How many projections an adapter of this network adapts."""
    return sum(2 if kind == "linear_attention" else 4 for kind in config.layer_types)
