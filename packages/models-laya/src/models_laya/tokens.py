"""From texts to token ids, as the checkpoints were trained."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from system1_core.errors import CheckpointError
from system1_core.processor import Prompt

# An option's text is cut to this many tokens, its mask not counted.
MAX_OPTION_TOKENS = 48
# Below this many tokens left for the question, all options are cut evenly.
MIN_HEAD_BUDGET = 16
_CACHED_TEXTS = 4096
_CACHED_CHARACTERS = 512


@dataclass(frozen=True, slots=True)
class LayaPrompt(Prompt):
    """One row: its markers are the positions whose hidden rows give the option logits."""

    markers: tuple[int, ...] = field(kw_only=True)
    type_id: int = field(kw_only=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """Everything of a row before the state: class token, question, options, separator.

    `markers` follow slot order. `tokens_per_option` is the even cut of all options, None when
    they fitted; `num_distinct` counts spans that still differ. `cut` names the parts that lost
    tokens ("instructions", "options"). `room` is what `max_len` leaves for the state.
    """

    prefix: tuple[int, ...]
    markers: tuple[int, ...]
    num_distinct: int
    tokens_per_option: int | None
    cut: tuple[str, ...]
    room: int
    max_len: int

    @property
    def fits(self) -> bool:
        """Whether every option's marker lies inside `max_len`."""
        return self.markers[-1] < self.max_len


class Tokens:
    """One checkpoint's tokenizer and its four special tokens; safe from several threads."""

    def __init__(self, folder: Path, vocab_size: int) -> None:
        self._file = folder / "tokenizer.json"
        self._tokenizer = _load_tokenizer(self._file)
        names = _special_names(folder / "tokenizer_config.json")
        self._mask_text = names["mask_token"]
        self.cls, self.sep, self.pad, self.mask = (
            self._special_id(names[f"{kind}_token"], vocab_size)
            for kind in ("cls", "sep", "pad", "mask")
        )
        # Agents repeat questions and options word for word.
        self._cached = lru_cache(_CACHED_TEXTS)(self._encode)

    def encode(self, text: str) -> tuple[int, ...]:
        """Ids without special tokens around them; the mask's own text counts as a space."""
        return (self._cached if len(text) <= _CACHED_CHARACTERS else self._encode)(text)

    def _encode(self, text: str) -> tuple[int, ...]:
        clean = text.replace(self._mask_text, " ")
        return tuple(self._tokenizer.encode(clean, add_special_tokens=False).ids)

    def _special_id(self, name: str, vocab_size: int) -> int:
        token = self._tokenizer.token_to_id(name)
        if token is None or token >= vocab_size:
            raise CheckpointError(
                f"{self._file}: special token {name!r} has id {token}, expected one below the "
                f"vocabulary's {vocab_size}; fetch the tokenizer again"
            )
        return token

    def frame(self, head: str, options: Sequence[str], max_len: int, head_max_len: int) -> Frame:
        """Lay out one question; `options` are in slot order."""
        whole = [self.encode(" " + text) for text in options]
        spans = [(self.mask, *ids[:MAX_OPTION_TOKENS]) for ids in whole]
        per = None
        budget = head_max_len - sum(map(len, spans))
        if budget < MIN_HEAD_BUDGET:
            per = max(4, (head_max_len - MIN_HEAD_BUDGET) // len(spans))
            spans = [span[:per] for span in spans]
            budget = head_max_len - sum(map(len, spans))
        question = self.encode(head)
        kept = question[: max(8, budget)]
        prefix, markers = [self.cls, *kept, self.sep], []
        for span in spans:
            markers.append(len(prefix))
            prefix += span
        prefix.append(self.sep)
        are_cut = any(len(span) - 1 < len(ids) for span, ids in zip(spans, whole, strict=True))
        return Frame(
            prefix=tuple(prefix),
            markers=tuple(markers),
            num_distinct=len(set(spans)),
            tokens_per_option=per,
            cut=("instructions",) * (len(kept) < len(question)) + ("options",) * are_cut,
            room=max(0, max_len - len(prefix) - 1),
            max_len=max_len,
        )

    def prompt(
        self, frame: Frame, state: Sequence[int], type_id: int, batch_key: str
    ) -> LayaPrompt:
        """The whole row; `state` must fit in the frame's room."""
        token_ids = (*frame.prefix, *state, self.sep)[: frame.max_len]
        return LayaPrompt(token_ids, batch_key=batch_key, markers=frame.markers, type_id=type_id)


def _load_tokenizer(file: Path) -> Tokenizer:
    if not file.is_file():
        raise CheckpointError(f"{file}: missing; a LAYA checkpoint folder holds it")
    try:
        tokenizer = Tokenizer.from_file(str(file))
    except Exception as error:  # the library raises bare Exception
        raise CheckpointError(f"{file}: no tokenizer: {error}; fetch the file again") from error
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def _special_names(file: Path) -> dict[str, str]:
    """The four special tokens' texts.

    Only they are read: the class (null or "TokenizersBackend" from newer tooling) is always a
    plain fast tokenizer, and `extra_special_tokens`, list or mapping, are in tokenizer.json.
    """
    try:
        fields: Any = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise CheckpointError(f"{file}: missing; a LAYA checkpoint folder holds it") from error
    except ValueError as error:
        raise CheckpointError(f"{file}: not JSON: {error}; fetch the file again") from error
    names: dict[str, str] = {}
    for key in ("cls_token", "sep_token", "pad_token", "mask_token"):
        value = fields.get(key) if isinstance(fields, dict) else None
        value = value.get("content") if isinstance(value, dict) else value
        if not isinstance(value, str) or not value:
            raise CheckpointError(
                f"{file}: {key} is {value!r}, expected a token's text; fetch the file again"
            )
        names[key] = value
    return names
