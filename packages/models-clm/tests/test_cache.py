"""The cache of embeddings by text."""

import numpy as np

from models_clm.cache import EmbeddingCache, key_of
from models_clm.prompts import Embedded


def entry(value=0.0):
    return Embedded(np.array([value], dtype=np.float32))


def test_known_texts_come_back_and_others_do_not():
    cache = EmbeddingCache(4)
    one = entry()
    cache.put([("a", one)])
    assert cache.get(["a", "b"]) == {"a": one}


def test_least_recently_used_goes_first():
    cache = EmbeddingCache(2)
    cache.put([("a", entry()), ("b", entry())])
    cache.get(["a"])
    cache.put([("c", entry())])
    assert set(cache.get(["a", "b", "c"])) == {"a", "c"}


def test_limit_of_zero_keeps_nothing():
    cache = EmbeddingCache(0)
    cache.put([("a", entry())])
    assert len(cache) == 0


def test_a_long_text_is_known_by_its_digest():
    cache, text = EmbeddingCache(4), "a" * 100_000
    one = entry()
    cache.put([(text, one), ("short", entry())])
    assert cache.get([text, text + "b"]) == {text: one}
    assert [len(key) for key in cache._entries] == [5, 32]
    assert key_of("short") == "short"
