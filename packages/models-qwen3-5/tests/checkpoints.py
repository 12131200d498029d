"""Writes small random checkpoints in the layouts that are accepted."""

import json
from pathlib import Path

import torch
from safetensors.torch import save_file

from models_qwen3_5.checkpoint import checkpoint_targets
from models_qwen3_5.config import read_config
from models_qwen3_5.text import TextModel
from models_qwen3_5.vision import VisionTower

TEXT = {
    "model_type": "qwen3_5_text",
    "hidden_size": 24,
    "intermediate_size": 40,
    "num_hidden_layers": 4,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 6,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 12,
    "linear_conv_kernel_dim": 4,
    "rms_norm_eps": 1e-6,
    "vocab_size": 50,
    "max_position_embeddings": 4096,
    "rope_parameters": {
        "rope_type": "default",
        "rope_theta": 10000.0,
        "partial_rotary_factor": 0.5,
        "mrope_section": [3, 3, 2],
        "mrope_interleaved": True,
    },
}
VISION = {
    "model_type": "qwen3_5_vision",
    "hidden_size": 16,
    "intermediate_size": 20,
    "depth": 1,
    "num_heads": 2,
    "num_position_embeddings": 9,
    "out_hidden_size": 24,
    "patch_size": 16,
    "temporal_patch_size": 2,
    "spatial_merge_size": 2,
}


def image_text_config(**text):
    return {
        "model_type": "qwen3_5",
        "text_config": TEXT | text,
        "vision_config": VISION,
        "image_token_id": 49,
        "tie_word_embeddings": text.get("tie_word_embeddings", False),
    }


def write_config(folder: Path, config) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def random_tensors(folder: Path, prefix="model.language_model.", dtype=torch.float32, seed=0):
    """Every tensor the config in `folder` asks for, by its name in a file."""
    config = read_config(folder)
    with torch.device("meta"):
        text = TextModel(config.text)
        vision = VisionTower(config.vision) if config.vision else None
    generator = torch.Generator().manual_seed(seed)
    return {
        name: (0.3 * torch.randn(target.shape, generator=generator)).to(dtype)
        for name, target in checkpoint_targets(text, vision, prefix).items()
    }


def write_checkpoint(folder: Path, config=None, **options) -> Path:
    """A folder with `config.json` and one file of random weights."""
    write_config(folder, config or image_text_config())
    save_file(random_tensors(folder, **options), folder / "model.safetensors")
    return folder


def write_adapter(folder: Path, modules, rank=2, alpha=4):
    """A LoRA adapter: `modules` maps names behind PEFT's prefix to (rows, columns)."""
    folder.mkdir(parents=True, exist_ok=True)
    generator = torch.Generator().manual_seed(7)
    tensors = {}
    for name, (rows, columns) in modules.items():
        key = f"base_model.model.{name}"
        tensors[f"{key}.lora_A.weight"] = torch.randn(rank, columns, generator=generator)
        tensors[f"{key}.lora_B.weight"] = torch.randn(rows, rank, generator=generator)
    save_file(tensors, folder / "adapter_model.safetensors")
    targets = sorted({name.rpartition(".")[2] for name in modules})
    config = {"peft_type": "LORA", "r": rank, "lora_alpha": alpha, "target_modules": targets}
    (folder / "adapter_config.json").write_text(json.dumps(config))
    return folder
