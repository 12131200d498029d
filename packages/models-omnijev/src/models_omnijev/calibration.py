"""From the heads' outputs to calibrated answers.

float64, except where the original keeps float32, which the fourth decimal shows.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

_LEAST = 1e-9
# The original's logits of a noul stay within these.
_MAX_LOGIT = 40.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """Temperatures and biases by question type, as `head_meta.json` has them."""

    temperatures: Mapping[str, float] = field(default_factory=dict)
    biases: Mapping[str, float] = field(default_factory=dict)
    default_temperature: float = 1.0

    def temperature(self, kind: str) -> float:
        return self.temperatures.get(kind, self.default_temperature)

    def noul(self, mu: float) -> float:
        """P(yes); the bias comes before the temperature."""
        p = min(max(mu, _LEAST), 1 - _LEAST)
        if bias := self.biases.get("noul", 0.0):
            logit = min(max(math.log(p / (1 - p)) + bias, -_MAX_LOGIT), _MAX_LOGIT)
            p = 1 / (1 + math.exp(-logit))
        return scaled([p, 1 - p], self.temperature("noul"))[0]

    def choice(self, mu: Sequence[float]) -> Chosen:
        """Options and abstention, scaled together."""
        values = np.asarray(mu, dtype=np.float32)
        total = values.sum(dtype=np.float32)
        is_valid = bool(total <= 1 + 1e-5)
        abstain = max(np.float32(0), np.float32(1) - total) if is_valid else np.float32(0)
        shares = values if is_valid else values / total
        every = scaled([*shares.tolist(), float(abstain)], self.temperature("choice"))
        *probabilities, abstain_share = np.asarray(every, dtype=np.float32).tolist()
        return Chosen(probabilities, abstain_share, is_valid)

    def score(self, mu: Sequence[float]) -> list[float]:
        """Probabilities of the levels, in their order."""
        values = np.asarray(mu, dtype=np.float32)
        shares = values / max(values.sum(dtype=np.float32), np.float32(1e-6))
        # The original scales a share for "none of these" along, which is always zero.
        every = scaled([*shares.tolist(), 0.0], self.temperature("score"))
        levels = np.asarray(every[:-1], dtype=np.float32)
        total = levels.sum(dtype=np.float32)
        shown: list[float] = (levels / (total if total > 0 else np.float32(1))).tolist()
        return shown


@dataclass(frozen=True, slots=True)
class Chosen:
    """A choice: the share of each option, and of none of them.

    The shares sum to 1 together. `is_valid` is False where the heads gave more than 1 in all.
    """

    probabilities: list[float]
    abstain: float
    is_valid: bool


def scaled(probabilities: Sequence[float], temperature: float) -> list[float]:
    """Probabilities to the power 1 / temperature, brought to a sum of 1."""
    if abs(temperature - 1) < 1e-6:
        return list(probabilities)
    weights = [max(_LEAST, p) ** (1 / temperature) for p in probabilities]
    total = math.fsum(weights)
    return [weight / total for weight in weights]


def confidence(probabilities: Sequence[float]) -> float:
    """The original's confidence, 0 to 1: how far the largest stands above an even share."""
    count = len(probabilities)
    if count < 2:
        return 1.0
    top = np.float32(max(probabilities))
    value = (np.float32(count) * top - np.float32(1)) / np.float32(count - 1)
    return float(min(max(value, np.float32(0)), np.float32(1)))
