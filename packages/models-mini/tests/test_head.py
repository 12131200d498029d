"""Logits of the head: the cosine, and an MLP where the weights hold one."""

import numpy as np
import pytest

from models_mini.head import Head

WIDTH, INNER = 8, 3


def unit(rng, *shape):
    vectors = rng.standard_normal(shape).astype(np.float32)
    return vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def arrays_of(rng):
    return {
        "noul.scale": np.float32(7),
        "noul.inner.weight": rng.standard_normal((4 * WIDTH, INNER)),
        "noul.inner.bias": rng.standard_normal(INNER),
        "noul.outer.weight": rng.standard_normal((INNER, 1)),
        "noul.outer.bias": rng.standard_normal(1),
        "choice.scale": np.float32(5),
    }


def test_a_type_without_an_mlp_is_answered_by_the_cosine(rng):
    state, candidates = unit(rng, WIDTH), unit(rng, 4, WIDTH)
    logits = Head(arrays_of(rng)).logits("choice", state, candidates)
    np.testing.assert_allclose(logits, 5 * candidates @ state, rtol=1e-5)


def test_a_type_with_an_mlp_adds_it(rng):
    arrays, state, candidates = arrays_of(rng), unit(rng, WIDTH), unit(rng, 4, WIDTH)
    logits = Head(arrays).logits("noul", state, candidates)
    for candidate, logit in zip(candidates, logits, strict=True):
        product = state * candidate * WIDTH**0.5
        pair = np.concatenate([state, candidate, product, abs(state - candidate)])
        x = pair @ arrays["noul.inner.weight"] + arrays["noul.inner.bias"]
        active = 0.5 * x * (1 + np.tanh((2 / np.pi) ** 0.5 * (x + 0.044715 * x**3)))
        learned = active @ arrays["noul.outer.weight"] + arrays["noul.outer.bias"]
        assert logit == pytest.approx(7 * candidate @ state + learned[0], rel=1e-4)
