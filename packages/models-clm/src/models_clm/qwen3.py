"""The dense Qwen3 decoder as an encoder: hidden rows of the last tokens, no vocabulary head."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from models_clm.attention import segment_attention
from models_clm.qwen3_config import Qwen3Config
from models_clm.segments import Packed
from system1_torch.ops.rms_norm import add_rms_norm, rms_norm
from system1_torch.ops.rotary import rotary
from system1_torch.ops.silu_mul import silu_mul


@dataclass(frozen=True, slots=True, kw_only=True)
class Qwen3Ops:
    """Filled once at load, called directly afterwards; signatures are those of the references."""

    linear: Callable[..., Tensor] = functional.linear
    rms_norm: Callable[..., Tensor] = rms_norm
    add_rms_norm: Callable[..., tuple[Tensor, Tensor]] = add_rms_norm
    rotary: Callable[..., Tensor] = rotary
    silu_mul: Callable[[Tensor], Tensor] = silu_mul
    segment_attention: Callable[..., Tensor] = segment_attention

    @classmethod
    def of(cls, offered: Mapping[str, Callable[..., Any]]) -> Qwen3Ops:
        """The references, replaced by what a backend offers under the same names."""
        names = {field.name for field in fields(cls)}
        return cls(**{name: op for name, op in offered.items() if name in names})


class Qwen3Layer(nn.Module):
    """One layer; projections that read the same rows are one weight."""

    def __init__(self, config: Qwen3Config, ops: Qwen3Ops) -> None:
        super().__init__()
        hidden, dim = config.hidden_size, config.head_dim
        self.heads, self.kv_heads = config.num_attention_heads, config.num_key_value_heads
        self.dim, self.eps, self.ops = dim, config.rms_norm_eps, ops
        self.qkv_proj = _weight((self.heads + 2 * self.kv_heads) * dim, hidden)
        self.o_proj = _weight(hidden, self.heads * dim)
        self.q_norm, self.k_norm = _weight(dim), _weight(dim)
        self.gate_up_proj = _weight(2 * config.intermediate_size, hidden)
        self.down_proj = _weight(hidden, config.intermediate_size)
        self.input_layernorm, self.post_attention_layernorm = _weight(hidden), _weight(hidden)

    def attend(self, normed: Tensor, packed: Packed, cos: Tensor, sin: Tensor) -> Tensor:
        """Attention before its output projection; shapes: normed [T, D], returns [T, H * K]."""
        ops, dim = self.ops, self.dim
        qkv = ops.linear(normed, self.qkv_proj).view(-1, self.heads + 2 * self.kv_heads, dim)
        q, k, v = qkv.split((self.heads, self.kv_heads, self.kv_heads), dim=1)
        q = ops.rotary(ops.rms_norm(q, self.q_norm, self.eps), cos, sin)
        k = ops.rotary(ops.rms_norm(k, self.k_norm, self.eps), cos, sin)
        return ops.segment_attention(q, k, v, packed.blocks).flatten(1)

    def finish(self, attended: Tensor, residual: Tensor) -> tuple[Tensor, Tensor]:
        """Output projection and MLP; returns the MLP's output and the residual to add it to."""
        ops = self.ops
        normed, residual = ops.add_rms_norm(
            ops.linear(attended, self.o_proj), residual, self.post_attention_layernorm, self.eps
        )
        return ops.linear(
            ops.silu_mul(ops.linear(normed, self.gate_up_proj)), self.down_proj
        ), residual


class Qwen3(nn.Module):
    """Packed sequences in, the last hidden row of each out."""

    def __init__(self, config: Qwen3Config, ops: Qwen3Ops) -> None:
        super().__init__()
        self.config, self.ops = config, ops
        self.embed_tokens = _weight(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(
            Qwen3Layer(config, ops) for _ in range(config.num_hidden_layers)
        )
        self.norm = _weight(config.hidden_size)

    def forward(self, packed: Packed) -> Tensor:
        """The final norm's rows at `packed.reads`, [N, D]."""
        ops, eps = self.ops, self.config.rms_norm_eps
        cos, sin = self._angles(packed.positions)
        residual = self.embed_tokens[packed.token_ids]
        normed = ops.rms_norm(residual, self.layers[0].input_layernorm, eps)
        for index, layer in enumerate(self.layers):
            is_last = index == len(self.layers) - 1
            attended = layer.attend(normed, packed, cos, sin)
            if is_last:  # nothing reads the other rows any more
                attended, residual = attended[packed.reads], residual[packed.reads]
            out, residual = layer.finish(attended, residual)
            weight = self.norm if is_last else self.layers[index + 1].input_layernorm
            normed, residual = ops.add_rms_norm(out, residual, weight, eps)
        return normed

    def _angles(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """cos and sin, [T, K / 2] float32."""
        steps = torch.arange(0, self.config.head_dim, 2, device=positions.device).float()
        inverse = self.config.rope_theta ** (-steps / self.config.head_dim)
        angles = positions.float()[:, None] * inverse
        return angles.cos(), angles.sin()

    def places(self) -> Iterator[tuple[str, Tensor]]:
        """Every tensor of a checkpoint by name, as a view of the weight it belongs in."""
        yield "embed_tokens.weight", self.embed_tokens
        yield "norm.weight", self.norm
        for index, layer in enumerate(self.layers):
            prefix, dim = f"layers.{index}", layer.dim
            rows = (layer.heads * dim, layer.kv_heads * dim, layer.kv_heads * dim)
            for name, view in zip("qkv", layer.qkv_proj.split(rows), strict=True):
                yield f"{prefix}.self_attn.{name}_proj.weight", view
            for name, view in zip(("gate", "up"), layer.gate_up_proj.chunk(2), strict=True):
                yield f"{prefix}.mlp.{name}_proj.weight", view
            yield f"{prefix}.self_attn.o_proj.weight", layer.o_proj
            yield f"{prefix}.self_attn.q_norm.weight", layer.q_norm
            yield f"{prefix}.self_attn.k_norm.weight", layer.k_norm
            yield f"{prefix}.mlp.down_proj.weight", layer.down_proj
            yield f"{prefix}.input_layernorm.weight", layer.input_layernorm
            yield f"{prefix}.post_attention_layernorm.weight", layer.post_attention_layernorm


def _weight(*shape: int) -> nn.Parameter:
    return nn.Parameter(torch.empty(*shape))
