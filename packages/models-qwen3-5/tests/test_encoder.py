"""The encoder gives what the tokenizer gives, whatever the text."""

import json
import random
from itertools import product

import pytest
from tokenizers import AddedToken, Tokenizer, normalizers, pre_tokenizers

import models_qwen3_5.encoder as encoder_module
from models_qwen3_5.chat import SPLIT_RULES, encode, load_tokenizer
from models_qwen3_5.encoder import TextEncoder

# Line ends, white space of Unicode, combining marks, words of many scripts, parts of added tokens.
ODD = [
    *map(chr, range(128)),
    *"\x85\xa0\u1680\u2003\u2028\u2029\u200b\ufeff\u0301\u0308\u0903\u0e31éÄßſKΩ字한ㄱ٣Ⅷ①🙂\U0001f469",
    "e\u0301",
    "\n\n",
    "\r\n",
    " \n ",
    "'ll",
    "'S",
    "<|im_end|>",
    "<|im_",
    "end|>",
    "<think>",
    "</think",
    "the tree",
    " Option",
    "12.5",
    "  x",
]


def odd_text(draw):
    return "".join(draw.choices(ODD, k=draw.randint(0, 24)))


def joining(base, tmp_path):
    """The base's tokenizer with a token for any two of some bytes: where a word ends shows."""
    values = json.loads((base / "tokenizer.json").read_text())
    model = values["model"]
    for pair in product("ĠĊčĉ.<|a1ÃĢ'l", repeat=2):
        if "".join(pair) not in model["vocab"]:
            model["vocab"]["".join(pair)] = 1_000 + len(model["vocab"])
            model["merges"].append(list(pair))
    (tmp_path / "tokenizer.json").write_text(json.dumps(values))
    return tmp_path


@pytest.fixture(params=[None, *SPLIT_RULES, "joining"])
def tokenizer(request, base, tmp_path):
    if request.param == "joining":
        return load_tokenizer(joining(base, tmp_path))
    return load_tokenizer(base, request.param)


def test_odd_texts_have_the_tokenizers_tokens(tokenizer):
    draw, encoder = random.Random(0), TextEncoder(tokenizer)
    for _ in range(3_000):
        text = odd_text(draw)
        assert encoder.encode(text) == encode(tokenizer, text), repr(text)


def test_any_characters_have_the_tokenizers_tokens(tokenizer):
    draw, encoder = random.Random(1), TextEncoder(tokenizer)
    codes = [*range(0xD800), *range(0xE000, 0x20000)]
    for _ in range(1_000):
        text = "".join(draw.choice(ODD) + chr(draw.choice(codes)) for _ in range(6))
        assert encoder.encode(text) == encode(tokenizer, text), repr(text)


def test_a_text_that_is_kept_has_the_same_tokens(tokenizer):
    encoder = TextEncoder(tokenizer)
    for text in ("", "a line\n", "<|im_start|>user\nGo."):
        assert list(encoder.encode_kept(text)) == encode(tokenizer, text)
        assert encoder.encode_kept(text) is encoder.encode_kept(text)


@pytest.mark.parametrize("end", ["\n", " ", "\r\n", "<|im_", ""])
def test_an_ending_behind_a_text_has_the_tokens_of_both(tokenizer, end):
    draw, encoder = random.Random(2), TextEncoder(tokenizer)
    for _ in range(300):
        text, ending = odd_text(draw) + end, f"<|im_end|>{odd_text(draw)}"
        assert encoder.encode_joined(text, ending) == encode(tokenizer, text + ending)


def test_words_and_texts_that_are_kept_are_bounded(tokenizer, monkeypatch):
    monkeypatch.setattr(encoder_module, "MAX_WORDS", 10)
    monkeypatch.setattr(encoder_module, "MAX_TEXTS", 4)
    encoder = TextEncoder(tokenizer)
    for number in range(40):
        text = " ".join(chr(97 + number % 26) * (number + 1) for _ in range(3))
        assert list(encoder.encode_kept(text)) == encode(tokenizer, text)
        assert len(encoder._words) <= 10
    assert encoder._kept.cache_info().currsize == 4
    assert max(map(len, encoder._words)) <= encoder_module.MAX_WORD_CHARS


def test_a_long_text_is_not_kept(tokenizer):
    encoder = TextEncoder(tokenizer)
    text = "a " * encoder_module.MAX_TEXT_CHARS
    assert list(encoder.encode_kept(text)) == encode(tokenizer, text)
    assert encoder._kept.cache_info().currsize == 0


def changed(base, **parts) -> Tokenizer:
    tokenizer = load_tokenizer(base)
    for name, part in parts.items():
        setattr(tokenizer, name, part)
    return tokenizer


def added(base, token) -> Tokenizer:
    tokenizer = load_tokenizer(base)
    tokenizer.add_tokens([token])
    return tokenizer


OTHERS = {
    "normalizer": lambda base: changed(base, normalizer=normalizers.Lowercase()),
    "words": lambda base: changed(base, pre_tokenizer=pre_tokenizers.ByteLevel(use_regex=True)),
    "no words": lambda base: changed(base, pre_tokenizer=None),
    "strips": lambda base: added(base, AddedToken("<x>", lstrip=True, normalized=False)),
    "normalized": lambda base: added(base, AddedToken("<x>", normalized=True)),
    "with a line's end": lambda base: added(base, AddedToken("<x\n>", normalized=False)),
}


@pytest.mark.parametrize("kind", OTHERS)
def test_a_tokenizer_of_other_rules_is_asked_itself(base, kind):
    tokenizer = OTHERS[kind](base)
    encoder = TextEncoder(tokenizer)
    assert encoder._added is None
    for text in ("Aa <x> the", "<x\n>b", "AB c"):
        assert encoder.encode(text) == encode(tokenizer, text)
        assert encoder.encode_joined("a \n", text) == encode(tokenizer, "a \n" + text)


def test_the_longest_of_added_tokens_is_found(base):
    tokenizer = load_tokenizer(base)
    tokenizer.add_tokens([AddedToken(name, normalized=False) for name in ("<x>", "<x>y", "x>y<")])
    encoder = TextEncoder(tokenizer)
    assert encoder._added is not None
    for text in ("<x>y<x>", "x>y<x>y", "<<x>>"):
        assert encoder.encode(text) == encode(tokenizer, text)
    assert encoder.encode_joined("x>y", "<x>") == encode(tokenizer, "x>y<x>")
