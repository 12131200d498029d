"""What the network says about one prompt, and what the action head is told of it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from system1_core.answers import softmax


@dataclass(frozen=True, slots=True)
class Reading:
    """What the network says about one prompt: logits by slot, and of the actions."""

    logits: tuple[float, ...]
    act_logits: tuple[float, ...]

    @property
    def act_probability(self) -> float:
        """Probability of the first action, acting."""
        return softmax(self.act_logits)[0]


def action_features(logits: Sequence[float]) -> tuple[float, float, float, float]:
    """What the action head knows of the options: top, margin, relative entropy, count."""
    probabilities = softmax(logits)
    count = max(2, len(probabilities))
    top, second = sorted((*probabilities, 0.0), reverse=True)[:2]
    entropy = -math.fsum(p * math.log(max(p, 1e-9)) for p in probabilities)
    return top, top - second, entropy / math.log(count), count / 255
