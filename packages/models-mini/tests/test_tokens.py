"""Windows over long texts."""

import pytest
from tokenizers import Tokenizer

from models_mini.checkpoint import open_checkpoint
from models_mini.tokens import OVERLAP, WindowedTokenizer

SIZE = 20


@pytest.fixture(scope="module")
def tokenizer():
    loaded = Tokenizer.from_str(open_checkpoint().read("tokenizer.json").decode())
    return WindowedTokenizer(loaded, SIZE + OVERLAP + 2)


@pytest.mark.parametrize("length", [0, 1, SIZE + OVERLAP - 1, SIZE + OVERLAP])
def test_what_fits_is_one_window(tokenizer, length):
    ids = list(range(1000, 1000 + length))
    assert tokenizer.windows(ids) == [[101, *ids, 102]]


@pytest.mark.parametrize("length", [SIZE + OVERLAP + 1, 2 * SIZE + OVERLAP, 500, 501])
def test_windows_cover_every_token_once_beside_their_overlap(tokenizer, length):
    ids = list(range(1000, 1000 + length))
    windows = [window[1:-1] for window in tokenizer.windows(ids)]
    assert len(windows) == -(-(length - OVERLAP) // SIZE)
    assert windows[0] + [id for window in windows[1:] for id in window[OVERLAP:]] == ids
    assert all(len(window) == SIZE + OVERLAP for window in windows[:-1])


def test_long_text_is_never_cut_by_the_tokenizer(tokenizer):
    assert len(tokenizer.ids("word " * 3000)) == 3000
