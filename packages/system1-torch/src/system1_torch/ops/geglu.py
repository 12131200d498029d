"""GeGLU: a GELU-gated product of the two halves of a projection."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional


def geglu(x: Tensor) -> Tensor:
    """gelu(first half) * second half over the last axis; GELU exact (erf), not the tanh form.

    Shapes: x [..., 2 * I], returns [..., I] in x's dtype. Computed in float32, rounded once.
    Raises ValueError if the last axis is odd.
    """
    if x.shape[-1] % 2:
        raise ValueError(f"geglu: the last axis has {x.shape[-1]} values, expected an even number")
    activated, gate = x.float().chunk(2, dim=-1)
    return (functional.gelu(activated) * gate).to(x.dtype)
