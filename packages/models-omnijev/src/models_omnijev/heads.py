"""The two heads behind the backbone, always in float32, split between device and host.

The option head scores `w . (o * g + F f) + v . f`, f being an option's six text features, of
which one compares all options of a question. Rows may run in different batches, so the device
gives `w . (o * g)` of each row, and the host adds the features' share, which is linear in f.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from models_omnijev.features import NUM_FEATURES, lm_features

TYPE_IDS = {"noul": 0, "choice": 1, "score": 2}


def _perceptron(width: int, inner: int, outer: int) -> nn.Sequential:
    # Names in the checkpoint count the activation: 0 and 2. Its GELU is the exact one.
    return nn.Sequential(nn.Linear(width, inner), nn.GELU(), nn.Linear(inner, outer))


class OptionHead(nn.Module):
    """Scores options of choices and nouls; attribute names are the checkpoint's."""

    def __init__(self, hidden_size: int) -> None:
        super().__init__()
        inner = min(1024, 2 * hidden_size)
        self.opt = _perceptron(hidden_size, inner, inner)
        self.que = _perceptron(hidden_size, inner, inner)
        self.score = nn.Linear(inner, 1)
        self.abstain = nn.Linear(inner, 1)
        self.feat = nn.Linear(NUM_FEATURES, inner)
        self.feat_lin = nn.Linear(NUM_FEATURES, 1)
        self.log_tau = nn.Parameter(torch.zeros(len(TYPE_IDS)))

    def forward(self, question: Tensor, option: Tensor) -> Tensor:
        """question, option [N, D] fp32 to [N, 2]: the option's own share, and abstention's."""
        gate = torch.tanh(self.que(question))
        own = (self.opt(option) * gate) @ self.score.weight.T
        return torch.cat([own, self.abstain(gate)], dim=1)


class OrdinalHead(nn.Module):
    """Cuts of a score's levels; attribute names are the checkpoint's."""

    def __init__(self, hidden_size: int) -> None:
        super().__init__()
        inner = min(512, hidden_size)
        self.z = _perceptron(hidden_size, inner, 1)
        self.cut = _perceptron(hidden_size, inner, 1)

    def forward(self, question: Tensor, level: Tensor) -> Tensor:
        """question, level [N, D] fp32 to [N, 2]: the level's raw cut, and the question's place."""
        return torch.cat([self.cut(level), self.z(question)], dim=1)


@dataclass(frozen=True, slots=True)
class RowOutput:
    """What the device gives of one row: the head's two numbers, and log-probabilities."""

    own: float
    shared: float
    logprobs: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class OptionScorer:
    """The host's share of the option head: weights [6] of the features, a bias, temperatures."""

    weights: np.ndarray
    bias: float
    taus: tuple[float, ...]
    is_softmax: bool = True

    @classmethod
    def of(cls, head: OptionHead, *, is_softmax: bool) -> OptionScorer:
        """What of `head` acts on the features."""
        with torch.no_grad():
            score = head.score.weight.double().cpu()
            weights = score @ head.feat.weight.double().cpu() + head.feat_lin.weight.double().cpu()
            bias = score @ head.feat.bias.double().cpu() + head.score.bias.double().cpu()
            bias = bias + head.feat_lin.bias.double().cpu()
            taus = head.log_tau.double().exp().tolist()
        return cls(weights[0].numpy(), float(bias), tuple(taus), is_softmax)

    def logits(self, kind: str, rows: Sequence[RowOutput]) -> np.ndarray:
        """Logits [K + 1] float32 of a question's options and of abstaining."""
        features = lm_features([row.logprobs for row in rows])
        own = np.array([row.own for row in rows])
        options = own + features @ self.weights + self.bias
        every = np.append(options, rows[0].shared) / self.taus[TYPE_IDS[kind]]
        return every.astype(np.float32)

    def mu(self, kind: str, rows: Sequence[RowOutput]) -> np.ndarray:
        """The head's output [K] float32: what is left of 1 abstains."""
        logits = torch.from_numpy(self.logits(kind, rows))
        if kind == "choice" and self.is_softmax:
            return logits.softmax(0)[:-1].numpy()
        return logits[:-1].sigmoid().numpy()


def level_probabilities(rows: Sequence[RowOutput]) -> np.ndarray:
    """The ordinal head's output [K] float32, levels in the order of the request."""
    raw = torch.tensor([row.own for row in rows])
    thresholds = torch.cat([raw[:1], raw[:1] + F.softplus(raw[1:]).cumsum(0)])
    below = torch.sigmoid(thresholds - rows[0].shared)
    below[-1] = 1
    return torch.diff(below, prepend=below.new_zeros(1)).clamp(min=1e-8).numpy()
