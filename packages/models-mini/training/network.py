"""The network in torch: one encoder for both sides, a small head over two vectors."""

import torch
import torch.nn.functional as F
from torch import nn

LAYERS, HIDDEN, HEADS, FFN, VOCABULARY, POSITIONS = 6, 384, 12, 1536, 30522, 512
EPSILON = 1e-12
HEAD_WIDTH = 64
TYPES = ("choice", "score", "noul")


class Layer(nn.Module):
    """One BERT layer; attribute names follow the base checkpoint."""

    def __init__(self):
        super().__init__()
        self.attention = nn.ModuleDict(
            {
                "self": nn.ModuleDict(
                    {name: nn.Linear(HIDDEN, HIDDEN) for name in ("query", "key", "value")}
                ),
                "output": _projection(HIDDEN),
            }
        )
        self.intermediate = nn.ModuleDict({"dense": nn.Linear(HIDDEN, FFN)})
        self.output = _projection(FFN)

    def forward(self, x, mask, dropout):
        attended = self._attend(x, mask)
        out = self.attention["output"]
        x = out["LayerNorm"](x + F.dropout(out["dense"](attended), dropout, self.training))
        wide = F.gelu(self.intermediate["dense"](x))
        narrow = self.output["dense"](wide)
        return self.output["LayerNorm"](x + F.dropout(narrow, dropout, self.training))

    def _attend(self, x, mask):
        batch, tokens, _ = x.shape
        q, k, v = (
            self.attention["self"][name](x).view(batch, tokens, HEADS, -1).transpose(1, 2)
            for name in ("query", "key", "value")
        )
        attended = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return attended.transpose(1, 2).reshape(batch, tokens, HIDDEN)


class Encoder(nn.Module):
    """MiniLM with mean pooling; `forward` returns unit vectors [N, 384]."""

    def __init__(self, dropout=0.1):
        super().__init__()
        self.dropout = dropout
        self.embeddings = nn.ModuleDict(
            {
                "word_embeddings": nn.Embedding(VOCABULARY, HIDDEN),
                "position_embeddings": nn.Embedding(POSITIONS, HIDDEN),
                "token_type_embeddings": nn.Embedding(2, HIDDEN),
                "LayerNorm": nn.LayerNorm(HIDDEN, eps=EPSILON),
            }
        )
        self.encoder = nn.ModuleDict({"layer": nn.ModuleList(Layer() for _ in range(LAYERS))})

    def forward(self, token_ids, mask):
        """token_ids [N, T] int64, mask [N, T] bool."""
        table = self.embeddings
        positions = torch.arange(token_ids.shape[1])
        x = table["word_embeddings"](token_ids) + table["position_embeddings"](positions)
        x = table["LayerNorm"](x + table["token_type_embeddings"].weight[0])
        x = F.dropout(x, self.dropout, self.training)
        for layer in self.encoder["layer"]:
            x = layer(x, mask[:, None, None, :], self.dropout)
        weights = mask.float()[:, :, None]
        return F.normalize((x * weights).sum(1) / weights.sum(1), dim=-1)


class Head(nn.Module):
    """Logit of a candidate: scale x cosine plus a small MLP, one set of weights for each type."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.full((len(TYPES),), 10.0))
        self.inner = nn.ModuleList(nn.Linear(4 * HIDDEN, HEAD_WIDTH) for _ in TYPES)
        self.outer = nn.ModuleList(nn.Linear(HEAD_WIDTH, 1) for _ in TYPES)
        for layer in self.outer:
            nn.init.zeros_(layer.weight)  # the cosine alone at the start
            nn.init.zeros_(layer.bias)

    def forward(self, state, candidates, kind):
        """state [D], candidates [N, D], kind an index into TYPES; returns logits [N]."""
        state = state.expand_as(candidates)
        product = state * candidates
        pair = torch.cat([state, candidates, product * HIDDEN**0.5, (state - candidates).abs()], -1)
        hidden = F.gelu(self.inner[kind](pair), approximate="tanh")  # what numpy can do cheaply
        return self.scale[kind] * product.sum(-1) + self.outer[kind](hidden)[:, 0]


def _projection(width):
    return nn.ModuleDict(
        {"dense": nn.Linear(width, HIDDEN), "LayerNorm": nn.LayerNorm(HIDDEN, eps=EPSILON)}
    )


def load_base(encoder, weights):
    """Fill the encoder from the base checkpoint's tensors, strictly, and freeze the word table."""
    wanted = {
        name: tensor
        for name, tensor in weights.items()
        if not name.startswith("pooler.") and not name.endswith("position_ids")
    }
    encoder.load_state_dict(wanted, strict=True)
    encoder.embeddings["word_embeddings"].weight.requires_grad_(False)
