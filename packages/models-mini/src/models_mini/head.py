"""The head: a logit for each candidate from the state's vector and the candidate's."""

import io
import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]

GELU_CUBIC = 0.044715  # of the tanh form, with which the head was trained


class Head:
    """Scale x cosine plus a small MLP, with weights of its own for each question type.

    A type whose weights hold no MLP is answered by the cosine alone.
    """

    def __init__(self, arrays: Mapping[str, Floats]) -> None:
        self._arrays = {name: array.astype(np.float32) for name, array in arrays.items()}

    @classmethod
    def from_bytes(cls, content: bytes) -> "Head":
        """Read `head.npz`."""
        with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
            return cls(dict(arrays))

    def logits(self, type: str, state: Floats, candidates: Floats) -> Floats:
        """state [D] or [N, D], candidates [N, D], all of unit length; returns [N] float32."""
        product = state * candidates
        logits: Floats = self._arrays[f"{type}.scale"] * product.sum(axis=1)
        if f"{type}.inner.weight" not in self._arrays:
            return logits
        part = {name: self._arrays[f"{type}.{name}"] for name in _PARTS}
        pair = np.concatenate(
            [
                np.broadcast_to(state, candidates.shape),
                candidates,
                product * np.float32(math.sqrt(state.shape[-1])),
                np.abs(state - candidates),
            ],
            axis=1,
        )
        hidden = _gelu(pair @ part["inner.weight"] + part["inner.bias"])
        learned = hidden @ part["outer.weight"] + part["outer.bias"]
        return logits + learned[:, 0]


_PARTS = ("inner.weight", "inner.bias", "outer.weight", "outer.bias")


def _gelu(x: Floats) -> Floats:
    inner = np.float32(math.sqrt(2 / math.pi)) * (x + np.float32(GELU_CUBIC) * x * x * x)
    activated: Floats = np.float32(0.5) * x * (1 + np.tanh(inner))
    return activated
