"""The network: a ModernBERT encoder and the decision head, over packed tokens."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from models_laya.config import LayaConfig
from models_laya.linear import Linear, make_geglu_linear, make_linear
from models_laya.ops import LayaOps

# `take(name, dtype)` hands over one tensor of the checkpoint, already on its device.
# None keeps the dtype of the file.
Take = Callable[[str, torch.dtype | None], Tensor]
Observe = Callable[[str, Tensor], None]
# (cos, sin) of every token, [T, K / 2] each, for layers that see everything and for local ones.
Tables = Mapping[bool, tuple[Tensor, Tensor]]
# Width of one attention head in the decision layers.
HEAD_SIZE = 64
HEAD_EPS = 1e-5
# What the action head is told of the options.
NUM_FEATURES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Packed:
    """Prompts laid end to end without padding.

    Shapes: token_ids, positions, type_ids [T]; cu_seqlens [N + 1] int32. `read_rows` [R] are the
    tokens whose hidden rows the answer needs, grouped by prompt, `cu_reads` [N + 1] their bounds.
    """

    token_ids: Tensor
    positions: Tensor
    type_ids: Tensor
    cu_seqlens: Tensor
    max_seqlen: int
    read_rows: Tensor
    cu_reads: Tensor


class Rotary:
    """Cosines and sines of all positions, one table a base; grows to the longest prompt seen."""

    def __init__(self, theta: float, head_size: int, device: torch.device) -> None:
        steps = torch.arange(0, head_size, 2, dtype=torch.float32, device=device) / head_size
        self._frequencies = 1.0 / theta**steps
        self._table = self._compute(512)

    def _compute(self, length: int) -> tuple[Tensor, Tensor]:
        positions = torch.arange(length, dtype=torch.float32, device=self._frequencies.device)
        angles = positions[:, None] * self._frequencies
        return angles.cos(), angles.sin()

    def at(self, positions: Tensor, max_seqlen: int) -> tuple[Tensor, Tensor]:
        """(cos, sin), [T, K / 2] each."""
        cos, sin = self.table_of(max_seqlen)
        return cos[positions], sin[positions]

    def table_of(self, length: int) -> tuple[Tensor, Tensor]:
        """(cos, sin) of the first `length` positions, [length, K / 2] each."""
        if length > self._table[0].shape[0]:
            self._table = self._compute(length)
        return self._table[0][:length], self._table[1][:length]


class EncoderLayer:
    """One ModernBERT layer; layer 0 has no norm of its own before the attention."""

    def __init__(
        self, take: Take, index: int, config: LayaConfig, ops: LayaOps, dtype: torch.dtype
    ) -> None:
        encoder, name = config.encoder, f"encoder.layers.{index}"
        self._ops = ops
        self._num_heads = encoder.num_attention_heads
        self.is_full = encoder.is_full[index]
        self._window = None if self.is_full else encoder.window
        self.attn_norm = take(f"{name}.attn_norm.weight", torch.float32) if index else None
        self.mlp_norm = take(f"{name}.mlp_norm.weight", torch.float32)
        self._eps = encoder.norm_eps
        self._qkv = make_linear(take(f"{name}.attn.Wqkv.weight", dtype))
        self._attn_out = make_linear(take(f"{name}.attn.Wo.weight", dtype))
        self._geglu = make_geglu_linear(
            take(f"{name}.mlp.Wi.weight", dtype), ops.geglu, ops.geglu is LayaOps().geglu
        )
        self._mlp_out = make_linear(take(f"{name}.mlp.Wo.weight", dtype))

    def __call__(
        self, x: Tensor, hidden: Tensor, batch: Packed, cos: Tensor, sin: Tensor
    ) -> tuple[Tensor, Tensor]:
        """(output of the MLP, residual stream before it is added); x is the normed input."""
        attended = self._attn_out(self._attend(x, batch, cos, sin))
        x, hidden = self._ops.residual_layer_norm(attended, hidden, self.mlp_norm, None, self._eps)
        return self._mlp_out(self._geglu(x)), hidden

    def _attend(self, x: Tensor, batch: Packed, cos: Tensor, sin: Tensor) -> Tensor:
        tokens, width = x.shape
        qkv = self._qkv(x).view(tokens, 3 * self._num_heads, -1)
        q_and_k = self._ops.rotary(qkv[:, : 2 * self._num_heads], cos, sin)
        q, k = q_and_k.chunk(2, dim=1)
        v = qkv[:, 2 * self._num_heads :]
        attended = self._ops.local_attention(
            q, k, v, batch.cu_seqlens, batch.max_seqlen, self._window
        )
        return attended.reshape(tokens, width)


class DecisionLayer:
    """One pre-norm transformer layer of the head; `reads` computes the read rows only."""

    def __init__(
        self, take: Take, index: int, config: LayaConfig, ops: LayaOps, dtype: torch.dtype
    ) -> None:
        name, width = f"head.layers.{index}", config.encoder.hidden_size
        self._ops = ops
        self._num_heads = max(1, width // HEAD_SIZE)
        self._norm1, self._norm2 = (
            (
                take(f"{name}.{norm}.weight", torch.float32),
                take(f"{name}.{norm}.bias", torch.float32),
            )
            for norm in ("norm1", "norm2")
        )
        weight = take(f"{name}.self_attn.in_proj_weight", dtype)
        bias = take(f"{name}.self_attn.in_proj_bias", torch.float32)
        self._query = make_linear(weight[:width], bias[:width])
        self._key_value = make_linear(weight[width:], bias[width:])
        # One product for all three where the weight's parts stay where they are.
        self._qkv = make_linear(weight, bias) if weight.is_cuda else None
        del weight

        def linear(part: str, activation: str = "none") -> Linear:
            weight = take(f"{name}.{part}.weight", dtype)
            return make_linear(weight, take(f"{name}.{part}.bias", torch.float32), activation)

        self._out = linear("self_attn.out_proj")
        self._linear1 = linear("linear1", "relu")
        self._linear2 = linear("linear2")

    def __call__(self, hidden: Tensor, batch: Packed, dtype: torch.dtype) -> Tensor:
        """The residual stream of every token, after the layer."""
        if self._qkv is None:
            x, k, v = self._keys_and_values(hidden, dtype)
            q = self._heads(self._query(x))
        else:
            x = self._ops.layer_norm(hidden, *self._norm1, HEAD_EPS).to(dtype)
            q, k, v = map(self._heads, self._qkv(x).chunk(3, dim=-1))
        attended = self._ops.local_attention(q, k, v, batch.cu_seqlens, batch.max_seqlen, None)
        return self._finish(attended, hidden)

    def reads(self, hidden: Tensor, batch: Packed, dtype: torch.dtype) -> Tensor:
        """The residual stream of the read rows, after the layer, [R, D]."""
        x, k, v = self._keys_and_values(hidden, dtype)
        q = self._heads(self._query(x[batch.read_rows]))
        attended = torch.empty_like(q)
        reads, bounds = batch.cu_reads.tolist(), batch.cu_seqlens.tolist()
        for index in range(len(bounds) - 1):
            rows = slice(reads[index], reads[index + 1])
            tokens = slice(bounds[index], bounds[index + 1])
            q_rows, k_rows, v_rows = (
                part.transpose(0, 1)[None] for part in (q[rows], k[tokens], v[tokens])
            )
            out = functional.scaled_dot_product_attention(q_rows, k_rows, v_rows)
            attended[rows] = out[0].transpose(0, 1)
        return self._finish(attended, hidden[batch.read_rows])

    def _keys_and_values(self, hidden: Tensor, dtype: torch.dtype) -> tuple[Tensor, ...]:
        x = self._ops.layer_norm(hidden, *self._norm1, HEAD_EPS).to(dtype)
        k, v = self._key_value(x).chunk(2, dim=-1)
        return x, self._heads(k), self._heads(v)

    def _heads(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self._num_heads, -1))

    def _finish(self, attended: Tensor, hidden: Tensor) -> Tensor:
        x, hidden = self._ops.residual_layer_norm(
            self._out(attended.flatten(1)), hidden, *self._norm2, HEAD_EPS
        )
        return hidden + self._linear2(self._linear1(x))


class LayaModel:
    """Hidden rows, option logits and action logits of packed prompts.

    Matrix products of the layers run in `dtype`; residual stream, norms, scorer and action head
    in float32. The token table stays in the file's dtype. One thread uses it at a time.
    """

    def __init__(self, config: LayaConfig, take: Take, ops: LayaOps, dtype: torch.dtype) -> None:
        encoder, float32 = config.encoder, torch.float32
        self._ops, self._dtype, self._eps = ops, dtype, encoder.norm_eps
        self._tok_embeddings = take("encoder.embeddings.tok_embeddings.weight", None)
        self.device = self._tok_embeddings.device
        self._embeddings_norm = take("encoder.embeddings.norm.weight", float32)
        self._layers = [
            EncoderLayer(take, index, config, ops, dtype)
            for index in range(encoder.num_hidden_layers)
        ]
        self._final_norm = take("encoder.final_norm.weight", float32)
        self.head_size = encoder.hidden_size // encoder.num_attention_heads
        full = Rotary(encoder.full_theta, self.head_size, self.device)
        is_shared = encoder.local_theta == encoder.full_theta
        local = full if is_shared else Rotary(encoder.local_theta, self.head_size, self.device)
        self._rotary = {True: full, False: local}
        self._type_emb = take("type_emb.weight", float32)
        self._head = [
            DecisionLayer(take, index, config, ops, dtype) for index in range(config.head_layers)
        ]
        self._scorer_norm = (take("scorer.0.weight", float32), take("scorer.0.bias", float32))
        self._scorer = _two_layers(take, "scorer.1", "scorer.3")
        self.act_head = ActionHead(take)

    def read(self, batch: Packed, observe: Observe | None = None) -> Tensor:
        """Hidden rows at `batch.read_rows` after the whole stack, [R, D] float32.

        `observe` sees the residual stream after every stage by name; only tests pass one.
        """
        tables = {
            kind: rotary.at(batch.positions, batch.max_seqlen)
            for kind, rotary in self._rotary.items()
        }
        hidden = self._encode(batch, tables, observe) + self._type_emb[batch.type_ids]
        for index, layer in enumerate(self._head[:-1]):
            hidden = layer(hidden, batch, self._dtype)
            _show(observe, f"head_layer_{index}", hidden)
        if not self._head:
            return hidden[batch.read_rows]
        rows = self._head[-1].reads(hidden, batch, self._dtype)
        _show(observe, f"head_layer_{len(self._head) - 1}", rows)
        return rows

    def option_logits(self, rows: Tensor) -> Tensor:
        """One logit for each option marker's row, [R]."""
        normed = self._ops.layer_norm(rows, *self._scorer_norm, HEAD_EPS)
        return self._scorer(normed)[:, 0]

    def action_logits(self, rows: Tensor, features: Tensor) -> Tensor:
        """Logits of the actions from each prompt's first row and its features [N, 4]."""
        return self.act_head(torch.cat([rows, features], dim=-1))

    def rotary_tables(self, length: int) -> Tensor:
        """Cosines and sines of the full layers, then of the local ones, [4, length, K / 2]."""
        return torch.stack(
            [table for kind in (True, False) for table in self._rotary[kind].table_of(length)]
        )

    def read_everything(self, batch: Packed, rotary_tables: Tensor) -> Tensor:
        """Hidden rows of every token after the whole stack, [T, D] float32.

        Never waits for the device, if the operations don't. Rows that belong to no sequence hold
        anything.
        """
        tables = rotary_tables.index_select(1, batch.positions)
        by_kind = {True: (tables[0], tables[1]), False: (tables[2], tables[3])}
        types = functional.embedding(batch.type_ids, self._type_emb)
        hidden = self._encode(batch, by_kind, None) + types
        for layer in self._head:
            hidden = layer(hidden, batch, self._dtype)
        return hidden

    def _encode(self, batch: Packed, tables: Tables, observe: Observe | None) -> Tensor:
        """The final norm of every token, [T, D] float32."""
        ops, eps = self._ops, self._eps
        embedded = functional.embedding(batch.token_ids, self._tok_embeddings).float()
        hidden = ops.layer_norm(embedded, self._embeddings_norm, None, eps)
        _show(observe, "embeddings", hidden)
        x = hidden.to(self._dtype)
        for index, layer in enumerate(self._layers):
            out, hidden = layer(x, hidden, batch, *tables[layer.is_full])
            if index + 1 < len(self._layers):
                norm = self._layers[index + 1].attn_norm
                x, hidden = ops.residual_layer_norm(out, hidden, norm, None, eps)
            else:
                hidden = hidden + out
            _show(observe, f"encoder_layer_{index}", hidden)
        hidden = ops.layer_norm(hidden, self._final_norm, None, eps)
        _show(observe, "encoder_final_norm", hidden)
        return hidden


class ActionHead:
    """Linear, exact gelu, linear over a prompt's first row and its features, in float32.

    In two halves too: the row's share of the first layer on the model's device, the rest, which
    needs the features, on the host.
    """

    def __init__(self, take: Take) -> None:
        weight, bias, out_weight, out_bias = (
            take(f"act_head.{name}", torch.float32)
            for name in ("0.weight", "0.bias", "2.weight", "2.bias")
        )
        self._inner, self._outer = (
            make_linear(weight, bias, "gelu"),
            make_linear(out_weight, out_bias),
        )
        self._row_part = Linear(weight[:, :-NUM_FEATURES], bias)
        self._feature_part = Linear(weight[:, -NUM_FEATURES:].cpu(), None)
        self._host_outer = Linear(out_weight.cpu(), out_bias.cpu())

    def __call__(self, x: Tensor) -> Tensor:
        return self._outer(self._inner(x))

    def of_rows(self, rows: Tensor) -> Tensor:
        """The rows' share of the first layer, bias included, before the gelu."""
        return self._row_part(rows)

    def finish(self, row_shares: Tensor, features: Tensor) -> Tensor:
        """Logits of the actions from what `of_rows` gave and the features, both on the host."""
        return self._host_outer(functional.gelu(row_shares + self._feature_part(features)))


def _two_layers(take: Take, first: str, second: str) -> Callable[[Tensor], Tensor]:
    """Linear, exact gelu, linear, all in float32."""

    def linear(name: str, activation: str = "none") -> Linear:
        weight, bias = (take(f"{name}.{part}", torch.float32) for part in ("weight", "bias"))
        return make_linear(weight, bias, activation)

    inner, outer = linear(first, "gelu"), linear(second)
    return lambda x: outer(inner(x))


def _show(observe: Observe | None, stage: str, hidden: Tensor) -> None:
    if observe is not None:
        observe(stage, hidden)
