"""The network's sizes, as its base has them."""

LAYERS, HIDDEN, HEADS, FFN, VOCABULARY, POSITIONS = 6, 384, 12, 1536, 30522, 512
EPSILON = 1e-12
HEAD_WIDTH = 64
TYPES = ("choice", "score", "noul")
