"""The text decoder over a packed tree."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn

from models_qwen3_5.config import TextConfig
from models_qwen3_5.ops import Ops
from models_qwen3_5.projection import Projection
from system1_torch.ops.quantised_linear import QuantisedRows
from system1_torch.packed_tree import PackedTree

Targets = Iterator[tuple[str, Tensor]]
# What a projection reads.
Rows = Tensor | QuantisedRows


@dataclass(frozen=True, slots=True)
class Step:
    """What all layers of one pass share: the tree, and the rotary tables [T, R] of its rows."""

    ops: Ops
    tree: PackedTree
    cos: Tensor
    sin: Tensor


def _weight(*shape: int) -> nn.Parameter:
    return nn.Parameter(torch.empty(*shape), requires_grad=False)


class DeltaNet(nn.Module):
    """A Gated DeltaNet mixer; its input projections are one weight, rows [qkv | z | b | a]."""

    def __init__(self, config: TextConfig) -> None:
        super().__init__()
        self.config = config
        heads, values = config.linear_num_value_heads, config.linear_value_head_dim
        widths = [config.conv_channels, heads * values, heads, heads]
        # Gates decide how long a state lasts: their few rows stay out of FP8.
        self.in_proj = Projection(widths, config.hidden_size, plain=2)
        self.conv1d = _weight(config.conv_channels, config.linear_conv_kernel_dim)
        self.A_log = _weight(heads)
        self.dt_bias = _weight(heads)
        self.norm = _weight(values)
        self.out_proj = Projection([config.hidden_size], heads * values)

    def targets(self) -> Targets:
        names = ("in_proj_qkv", "in_proj_z", "in_proj_b", "in_proj_a")
        for name, rows in zip(names, self.in_proj.parts(), strict=True):
            yield f"linear_attn.{name}.weight", rows
        yield "linear_attn.conv1d.weight", self.conv1d.unsqueeze(1)
        yield "linear_attn.A_log", self.A_log
        yield "linear_attn.dt_bias", self.dt_bias
        yield "linear_attn.norm.weight", self.norm
        yield "linear_attn.out_proj.weight", *self.out_proj.parts()

    def forward(self, x: Rows, step: Step, rows: Tensor | None) -> Tensor:
        ops, config = step.ops, self.config
        qkv, z, b, a = self.in_proj(x, ops)
        heads = (config.linear_num_key_heads, config.linear_key_head_dim)
        operands = ops.delta_inputs(
            qkv, b, a, self.conv1d, self.A_log, self.dt_bias, step.tree, *heads
        )
        out = ops.tree_delta_rule(*operands, step.tree)
        if rows is not None:
            out, z = out[rows], z[rows]
        gate = z.unflatten(1, (config.linear_num_value_heads, -1))
        if self.out_proj.is_quantised:
            normed = ops.gated_rms_norm_quantised(out, gate, self.norm, config.rms_norm_eps)
        else:
            normed = ops.gated_rms_norm(out, gate, self.norm, config.rms_norm_eps).flatten(1)
        return self.out_proj(normed, ops)[0]


class Attention(nn.Module):
    """Gated full attention; its projections are one weight, rows [query and gate | k | v]."""

    def __init__(self, config: TextConfig) -> None:
        super().__init__()
        self.config = config
        keys = config.num_key_value_heads * config.head_dim
        queries = config.num_attention_heads * config.head_dim
        self.qkv_proj = Projection([2 * queries, keys, keys], config.hidden_size)
        self.q_norm = _weight(config.head_dim)
        self.k_norm = _weight(config.head_dim)
        self.o_proj = Projection([config.hidden_size], queries)

    def targets(self) -> Targets:
        names = ("q_proj", "k_proj", "v_proj")
        for name, rows in zip(names, self.qkv_proj.parts(), strict=True):
            yield f"self_attn.{name}.weight", rows
        yield "self_attn.q_norm.weight", self.q_norm
        yield "self_attn.k_norm.weight", self.k_norm
        yield "self_attn.o_proj.weight", *self.o_proj.parts()

    def forward(self, x: Rows, step: Step, rows: Tensor | None) -> Tensor:
        ops, head_dim, eps = step.ops, self.config.head_dim, self.config.rms_norm_eps
        cos, sin = step.cos, step.sin
        if rows is None:
            q, k, v = self.qkv_proj(x, ops)
        else:
            (q,) = self.qkv_proj.part(0, 1, x[rows], ops)
            k, v = self.qkv_proj.part(1, 3, x, ops)
        q, gate = q.unflatten(1, (-1, 2, head_dim)).unbind(2)
        k = ops.norm_rope(k.unflatten(1, (-1, head_dim)), self.k_norm, cos, sin, eps)
        if rows is not None:
            cos, sin = cos[rows], sin[rows]
        q = ops.norm_rope(q, self.q_norm, cos, sin, eps)
        v = v.unflatten(1, (-1, head_dim))
        return self.o_proj(ops.gated_tree_attention(q, k, v, gate, step.tree, rows), ops)[0]


class GatedMLP(nn.Module):
    """A SwiGLU MLP; its input projections are one weight, rows [gate | up]."""

    def __init__(self, config: TextConfig) -> None:
        super().__init__()
        self.gate_up_proj = Projection([2 * config.intermediate_size], config.hidden_size)
        self.down_proj = Projection([config.hidden_size], config.intermediate_size)

    def targets(self) -> Targets:
        (rows,) = self.gate_up_proj.parts()
        gate, up = rows.chunk(2)
        yield "mlp.gate_proj.weight", gate
        yield "mlp.up_proj.weight", up
        yield "mlp.down_proj.weight", *self.down_proj.parts()

    def forward(self, x: Rows, ops: Ops) -> Tensor:
        (gate_up,) = self.gate_up_proj(x, ops)
        silu_mul = ops.silu_mul_quantised if self.down_proj.is_quantised else ops.silu_mul
        return self.down_proj(silu_mul(gate_up), ops)[0]


class Layer(nn.Module):
    """One decoder layer: a mixer and an MLP, each behind a norm."""

    def __init__(self, config: TextConfig, kind: str) -> None:
        super().__init__()
        self.input_layernorm = _weight(config.hidden_size)
        self.mixer = (Attention if kind == "full_attention" else DeltaNet)(config)
        self.post_attention_layernorm = _weight(config.hidden_size)
        self.mlp = GatedMLP(config)

    @property
    def input_proj(self) -> Projection:
        """The mixer's, which reads the input norm."""
        mixer = self.mixer
        return mixer.qkv_proj if isinstance(mixer, Attention) else mixer.in_proj

    def targets(self) -> Targets:
        yield "input_layernorm.weight", self.input_layernorm
        yield "post_attention_layernorm.weight", self.post_attention_layernorm
        yield from self.mixer.targets()
        yield from self.mlp.targets()

    def quantise(self) -> None:
        """Turn the projections into FP8, one at a time."""
        for part in self.modules():
            if isinstance(part, Projection):
                part.quantise()


class TextModel(nn.Module):
    """The decoder; `lm_head` is the embedding where they are tied, None where nobody reads it."""

    def __init__(self, config: TextConfig, *, head: bool = True) -> None:
        super().__init__()
        self.config = config
        self.embed_tokens = _weight(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(Layer(config, kind) for kind in config.layer_types)
        self.norm = _weight(config.hidden_size)
        self.lm_head: nn.Parameter | None = None
        if head and not config.tie_word_embeddings:
            self.lm_head = _weight(config.vocab_size, config.hidden_size)

    @property
    def head(self) -> Tensor | None:
        return self.embed_tokens if self.config.tie_word_embeddings else self.lm_head

    def _layers(self) -> list[Layer]:
        return cast("list[Layer]", list(self.layers))

    def targets(self) -> Targets:
        """Where each tensor of the checkpoint goes, by its name behind the model's prefix."""
        yield "embed_tokens.weight", self.embed_tokens
        yield "norm.weight", self.norm
        for start, layer in self.layers_by_name():
            for name, target in layer.targets():
                yield start + name, target

    def layers_by_name(self, prefix: str = "") -> Iterator[tuple[str, Layer]]:
        """Each layer behind what its tensors' names begin with."""
        for index, layer in enumerate(self._layers()):
            yield f"{prefix}layers.{index}.", layer

    def projections(self) -> Iterator[Projection]:
        """Every fused linear layer."""
        return (part for part in self.modules() if isinstance(part, Projection))

    def forward(self, x: Tensor, step: Step, rows: Tensor | None = None) -> Tensor:
        """Final-norm rows of the packed stream.

        Shapes: x [T, D] embeddings; returns [R, D], the given `rows` [R] (rising), or all T. The
        last layer computes queries, gates, output and MLP of those rows only.
        """
        ops, eps = step.ops, self.config.rms_norm_eps
        layers = self._layers()
        residual = x
        x = _norm(x, layers[0].input_layernorm, eps, layers[0].input_proj, ops)
        following = [(layer.input_layernorm, layer.input_proj) for layer in layers[1:]]
        for layer, (norm, into) in zip(layers, [*following, (self.norm, None)], strict=True):
            wanted = rows if layer is layers[-1] else None
            mixed = layer.mixer(x, step, wanted)
            if wanted is not None:
                residual = residual[wanted]
            x, residual = _add_norm(
                mixed, residual, layer.post_attention_layernorm, eps, layer.mlp.gate_up_proj, ops
            )
            x, residual = _add_norm(layer.mlp(x, ops), residual, norm, eps, into, ops)
        return x


def _norm(x: Tensor, weight: Tensor, eps: float, into: Projection, ops: Ops) -> Rows:
    """RMSNorm in the form that `into` reads."""
    if not into.is_quantised:
        return ops.rms_norm(x, weight, eps, 1.0)
    return ops.rms_norm_quantised(x, weight, eps, 1.0, into.is_mixed)


def _add_norm(
    x: Tensor, residual: Tensor, weight: Tensor, eps: float, into: Projection | None, ops: Ops
) -> tuple[Rows, Tensor]:
    """The residual added and its RMSNorm in the form that `into` reads, and the sum."""
    if into is None or not into.is_quantised:
        return ops.add_rms_norm(x, residual, weight, eps, 1.0)
    return ops.add_rms_norm_quantised(x, residual, weight, eps, 1.0, into.is_mixed)
