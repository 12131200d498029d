"""The normaliser of a full vocabulary, without its logits in memory."""

from __future__ import annotations

import torch
from torch import Tensor


def log_sum_exp(hidden: Tensor, weight: Tensor, chunk_rows: int = 8192) -> Tensor:
    """Log of the sum of exp(hidden @ weight.T) over the vocabulary, `chunk_rows` of it at a time.

    Shapes: hidden [R, D]; weight [V, D]; returns [R] float32. Logits are rounded to hidden's
    dtype, as a vocabulary head gives them, then everything is float32.
    """
    total = torch.full((hidden.shape[0],), -torch.inf, device=hidden.device)
    for rows in weight.split(chunk_rows):
        logits = torch.nn.functional.linear(hidden, rows).float()
        total = torch.logaddexp(total, torch.logsumexp(logits, dim=-1))
    return total
