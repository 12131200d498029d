"""The sizes of the released models, and small ones of the same make."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

VOCABULARY = 248_320
IMAGE_TOKEN = 248_056


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """What tells sizes apart; `vision` is hidden size, MLP width, depth, heads, positions."""

    hidden: int
    mlp: int
    layers: int
    heads: int
    key_heads: int
    delta_key_heads: int
    delta_heads: int
    vision: tuple[int, int, int, int, int]
    tied: bool


SIZES = {
    "4B": Size(
        hidden=2560, mlp=9216, layers=32, heads=16, key_heads=4, delta_key_heads=16,
        delta_heads=32, vision=(1024, 4096, 24, 16, 2304), tied=True,
    ),
    "27B": Size(
        hidden=5120, mlp=17408, layers=64, heads=24, key_heads=4, delta_key_heads=16,
        delta_heads=48, vision=(1152, 4304, 27, 16, 2304), tied=False,
    ),
    "tiny 4B": Size(
        hidden=64, mlp=128, layers=4, heads=4, key_heads=2, delta_key_heads=2,
        delta_heads=4, vision=(128, 256, 2, 2, 256), tied=True,
    ),
    "tiny 27B": Size(
        hidden=64, mlp=128, layers=4, heads=4, key_heads=2, delta_key_heads=2,
        delta_heads=4, vision=(128, 256, 2, 2, 256), tied=False,
    ),
}  # fmt: skip


def config_json(size: Size, vocabulary: int | None = None) -> dict[str, Any]:
    """The content of config.json for an image-text checkpoint."""
    text = {
        "model_type": "qwen3_5_text",
        "dtype": "bfloat16",
        "attention_bias": False,
        "attn_output_gate": True,
        "hidden_act": "silu",
        "hidden_size": size.hidden,
        "intermediate_size": size.mlp,
        "num_hidden_layers": size.layers,
        "full_attention_interval": 4,
        "num_attention_heads": size.heads,
        "num_key_value_heads": size.key_heads,
        "head_dim": 256,
        "linear_num_key_heads": size.delta_key_heads,
        "linear_num_value_heads": size.delta_heads,
        "linear_key_head_dim": 128,
        "linear_value_head_dim": 128,
        "linear_conv_kernel_dim": 4,
        "rms_norm_eps": 1e-6,
        "vocab_size": vocabulary or VOCABULARY,
        "max_position_embeddings": 262_144,
        "tie_word_embeddings": size.tied,
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": 10_000_000,
            "partial_rotary_factor": 0.25,
            "mrope_interleaved": True,
            "mrope_section": [11, 11, 10],
        },
    }
    hidden, mlp, depth, heads, positions = size.vision
    vision = {
        "model_type": "qwen3_5",
        "hidden_act": "gelu_pytorch_tanh",
        "hidden_size": hidden,
        "intermediate_size": mlp,
        "depth": depth,
        "num_heads": heads,
        "num_position_embeddings": positions,
        "out_hidden_size": size.hidden,
        "in_channels": 3,
        "patch_size": 16,
        "temporal_patch_size": 2,
        "spatial_merge_size": 2,
        "deepstack_visual_indexes": [],
    }
    return {
        "architectures": ["Qwen3_5ForConditionalGeneration"],
        "model_type": "qwen3_5",
        "image_token_id": IMAGE_TOKEN,
        "tie_word_embeddings": size.tied,
        "text_config": text,
        "vision_config": vision,
    }
