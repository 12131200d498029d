"""The network in torch: one encoder over rows of segments, a small head over two vectors."""

import torch
import torch.nn.functional as F
from sizes import EPSILON, FFN, HEAD_WIDTH, HEADS, HIDDEN, LAYERS, POSITIONS, TYPES
from torch import nn


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
        # Written out: the fused kernels' backward passes are not all deterministic.
        batch, tokens, _ = x.shape
        q, k, v = (
            self.attention["self"][name](x).view(batch, tokens, HEADS, -1).transpose(1, 2)
            for name in ("query", "key", "value")
        )
        scores = q @ k.transpose(2, 3) * (HIDDEN // HEADS) ** -0.5
        attended = (scores + mask).softmax(-1) @ v
        return attended.transpose(1, 2).reshape(batch, tokens, HIDDEN)


class Encoder(nn.Module):
    """MiniLM with a mean over each segment; `forward` returns unit vectors [R, S, 384].

    The word table `words` [30522, 384] is frozen and not among the trained tensors.
    """

    def __init__(self, words, dropout=0.1):
        super().__init__()
        self.dropout = dropout
        self.register_buffer("words", words, persistent=False)
        self.embeddings = nn.ModuleDict(
            {
                "position_embeddings": nn.Embedding(POSITIONS, HIDDEN),
                "token_type_embeddings": nn.Embedding(2, HIDDEN),
                "LayerNorm": nn.LayerNorm(HIDDEN, eps=EPSILON),
            }
        )
        self.encoder = nn.ModuleDict({"layer": nn.ModuleList(Layer() for _ in range(LAYERS))})

    def forward(self, rows):
        """`rows`: a `rows.Rows` of tensors on the encoder's device."""
        table = self.embeddings
        x = F.embedding(rows.token_ids, self.words) + table["position_embeddings"](rows.positions)
        x = table["LayerNorm"](x + table["token_type_embeddings"](rows.kinds))
        x = F.dropout(x, self.dropout, self.training)
        column = rows.segments[:, None, :]
        same = rows.segments[:, :, None] == column
        parent = rows.parents[:, :, None] == column
        for index, layer in enumerate(self.encoder["layer"]):
            seen = same | (parent & (rows.layers <= index)[:, :, None])
            x = layer(x, _bias(seen, x.dtype), self.dropout)
        number = torch.arange(rows.lengths.shape[1], device=x.device)
        member = (rows.segments[:, None, :] == number[:, None]).to(x.dtype)
        pooling = member / rows.lengths.clamp(min=1)[:, :, None]
        return F.normalize((pooling @ x).float(), dim=-1)


class Head(nn.Module):
    """Logit of a candidate: scale x cosine plus a small MLP, one set of weights for each type.

    For the types in `cosine` it is scale x cosine alone, and the MLP stays as it was made.
    """

    def __init__(self, cosine=()):
        super().__init__()
        self.cosine = frozenset(map(TYPES.index, cosine))
        self.scale = nn.Parameter(torch.full((len(TYPES),), 10.0))
        self.inner = nn.ModuleList(nn.Linear(4 * HIDDEN, HEAD_WIDTH) for _ in TYPES)
        self.outer = nn.ModuleList(nn.Linear(HEAD_WIDTH, 1) for _ in TYPES)
        for layer in self.outer:
            nn.init.zeros_(layer.weight)  # the cosine alone at the start
            nn.init.zeros_(layer.bias)

    def forward(self, vectors, types):
        """vectors [R, S, D], the state first; types [R]; returns logits [R, S - 1]."""
        candidates = vectors[:, 1:]
        state = vectors[:, :1].expand_as(candidates)
        product = state * candidates
        # Entries of unit vectors are near D**-0.5; the MLP learns faster from entries near 1.
        pair = HIDDEN**0.5 * torch.cat(
            [state, candidates, product * HIDDEN**0.5, (state - candidates).abs()], -1
        )
        cosine = product.sum(-1)
        logits = torch.zeros_like(cosine)
        for kind in range(len(TYPES)):
            found = self.scale[kind] * cosine
            if kind not in self.cosine:
                hidden = F.gelu(self.inner[kind](pair), approximate="tanh")  # cheap in numpy
                found = found + self.outer[kind](hidden)[..., 0]
            logits = torch.where((types == kind)[:, None], found, logits)
        return logits


class Network(nn.Module):
    """Encoder and head; `forward` answers a batch."""

    def __init__(self, encoder, cosine=()):
        super().__init__()
        self.encoder, self.head = encoder, Head(cosine)

    def forward(self, batch):
        """`batch`: a `rows.Batch` of tensors; returns logits [B, C], absent candidates at -inf."""
        parts = [
            self.head(self.encoder(rows), types).flatten()
            for rows, types in zip(batch.chunks, batch.row_types, strict=True)
        ]
        logits = torch.cat(parts)[batch.places]
        first = torch.where(batch.is_single, torch.zeros_like(logits[:, 0]), logits[:, 0])
        logits = torch.cat([first[:, None], logits[:, 1:]], 1)
        return logits.masked_fill(~batch.present, float("-inf"))


def _bias(seen, dtype):
    return torch.where(seen, 0.0, torch.finfo(dtype).min).to(dtype)[:, None]


def _projection(width):
    return nn.ModuleDict(
        {"dense": nn.Linear(width, HIDDEN), "LayerNorm": nn.LayerNorm(HIDDEN, eps=EPSILON)}
    )
