"""The published sizes, on the meta device."""

import torch

from models_clm.head import DualHead, HeadConfig
from models_clm.qwen3 import Qwen3, Qwen3Ops
from models_clm.qwen3_config import Qwen3Config

PUBLISHED = {"width": 1536, "depth": 3, "activation": "gelu", "layernorm": True, "residual": False}


def test_published_head_has_16_tensors_and_19_million_parameters():
    with torch.device("meta"):
        tensors = DualHead(HeadConfig.of(PUBLISHED)).state_dict()
    assert len(tensors) == 16
    assert sum(tensor.numel() for tensor in tensors.values()) == 18_887_680
    assert tensors["state_head.inp.weight"].shape == (1536, 4096)
    assert tensors["action_head.hidden.0.weight"].shape == (1536, 1536)
    assert tensors["action_head.norms.0.bias"].shape == (1536,)
    assert tensors["state_head.out.weight"].shape == (512, 1536)


def test_qwen3_8b_has_every_tensor_of_its_checkpoint_but_the_vocabulary_head():
    config = Qwen3Config(
        hidden_size=4096,
        intermediate_size=12288,
        num_hidden_layers=36,
        num_attention_heads=32,
        num_key_value_heads=8,
        head_dim=128,
        vocab_size=151_936,
        max_position_embeddings=40_960,
        rms_norm_eps=1e-6,
        rope_theta=1e6,
    )
    with torch.device("meta"):
        places = dict(Qwen3(config, Qwen3Ops()).places())
    assert len(places) == 2 + 36 * 11
    assert sum(tensor.numel() for tensor in places.values()) == 8_190_735_360 - 151_936 * 4096
    assert places["layers.35.self_attn.k_proj.weight"].shape == (1024, 4096)
    assert places["layers.0.mlp.down_proj.weight"].shape == (4096, 12288)
