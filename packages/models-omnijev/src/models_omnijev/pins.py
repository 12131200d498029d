"""The pinned files: the contract's revisions and hashes."""

from __future__ import annotations

from system1_core.checkpoint import Checkpoint

OMNIJEV = Checkpoint(
    name="omnijev-4b-v1.1",
    repo="tinnel123/OmniJev",
    revision="ffe5f436eaf22e20e2f041f8e74e121fd057a6cb",
    patterns=(
        "adapter_config.json",
        "adapter_model.safetensors",
        "head.pt",
        "ord.pt",
        "new_tok_emb.pt",
        "head_meta.json",
        "processor_config.json",
        "tokenizer.json",
        "tokenizer_config.json",
        "chat_template.jinja",
    ),
    sha256={
        "adapter_config.json": "0686ea535f56ee7733d29a861c2b0a498ac48c32c13b9a737c7322709e6851e5",
        "adapter_model.safetensors": (
            "96247914d7e2e68a7124c35c49393267c2beb98769d096f5172ed0043851f0f0"
        ),
        "head.pt": "7b801a1901040e70559deb74eadb11709540ff65ef926213ecf881e4f4070320",
        "ord.pt": "38c8e1bdb23f8ccd915dba75e05596d36fe2896f95c984166fc3713a027f5b68",
        "new_tok_emb.pt": "cd78e3440c03c7ace689ddb3b05f860c5cc59b710a8202cbc8f8252de1cd18de",
        "head_meta.json": "d184edd664ad85bbbb782157a8965db33c36d4a144d8b781d19f5c11cd2778ee",
        "processor_config.json": "bcbca4244c9b61672113167b05f159dc8a33741661ef7b1fc72bf6812a770bcc",
        "tokenizer.json": "2f838eae798ef282bfcbbeb01645e728680e9b8b493ef3e0c63ff2d9ed28a8c4",
        "tokenizer_config.json": "feaa62c900dd7ec96738aa38df18eef2fac49269a987947a22f157cd70fe7bc3",
        "chat_template.jinja": "a4aee8afcf2e0711942cf848899be66016f8d14a889ff9ede07bca099c28f715",
    },
    description="adapter, heads and tokens of the 4B model",
)
BASE = Checkpoint(
    name="base",
    repo="Qwen/Qwen3.5-4B",
    revision="851bf6e806efd8d0a36b00ddf55e13ccb7b8cd0a",
    patterns=("config.json", "model.safetensors.index.json", "model.safetensors-*.safetensors"),
    sha256={
        "config.json": "ddc63e1c717afa86c865bb5e01313d89d72bb53b97ad4a8a03ba8510c0621670",
        "model.safetensors.index.json": (
            "cf3f798ee02ba45f9622aa8892a47369ab667d0afbf154ee7c2212de42e6302d"
        ),
        "model.safetensors-00001-of-00002.safetensors": (
            "26a93f066e1916adb13453dae5a0c707c0fbc71299ed98779571a907b8e74c61"
        ),
        "model.safetensors-00002-of-00002.safetensors": (
            "cb544bd9bfae93dc59b0f22b292f5933573854a7f9b97835c67060d7d910e188"
        ),
    },
    description="Qwen3.5-4B, the base under the adapter",
)
