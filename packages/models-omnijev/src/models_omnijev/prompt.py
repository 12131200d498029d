"""From a question to its rows: every option alone behind the shared beginning."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from models_omnijev.pictures import Pictures
from models_omnijev.questions import Asked
from models_qwen3_5.chat import (
    IMAGE_PLACEHOLDER,
    ChatTemplate,
    load_tokenizer,
    place_images,
    single_tokens,
)
from models_qwen3_5.encoder import TextEncoder
from models_qwen3_5.sequence import ImageSpan, Reads, SequencePrompt, make_key
from system1_core.errors import CheckpointError

OPEN, CLOSE = "<|opt|>", "<|/opt|>"
_PICTURE = f"<|vision_start|>{IMAGE_PLACEHOLDER}<|vision_end|>"


@dataclass(frozen=True, slots=True, eq=False)
class RowPrompt(SequencePrompt):
    """One option behind its question. `hidden` reads the question's row, then the option's."""

    is_level: bool = field(kw_only=True)


@dataclass(frozen=True, slots=True)
class QuestionTokens:
    """A question with all its options in one sequence, as the original tokenizes it.

    `opens` and `closes` are the positions of the option markers.
    """

    token_ids: list[int]
    images: tuple[ImageSpan, ...]
    opens: tuple[int, ...]
    closes: tuple[int, ...]

    @property
    def num_option_tokens(self) -> int:
        return sum(c - o - 1 for o, c in zip(self.opens, self.closes, strict=True))

    def rows(self, *, is_level: bool) -> list[RowPrompt]:
        """A sequence for each option: the question, then this option's block alone.

        Levels are read at two places only; other options also give the log-probability of each of
        their tokens, and first of all that of the first one straight after the question.
        """
        head = self.token_ids[: self.opens[0]]
        head_key = make_key(head, self.images)
        rows = []
        for opened, closed in zip(self.opens, self.closes, strict=True):
            block = self.token_ids[opened : closed + 1]
            places = (len(head) - 1, len(head) + len(block) - 1)
            text = () if is_level else block[1:-1]
            logprobs = [(len(head) + at, token) for at, token in enumerate(text)]
            if text:
                logprobs.insert(0, (places[0], text[0]))
            reads = Reads(hidden=places, logprobs=tuple(logprobs))
            row = RowPrompt(
                [*head, *block],
                reads=reads,
                images=self.images,
                key=np.concatenate((head_key, make_key(block))),
                is_level=is_level,
            )
            rows.append(row)
        return rows


def input_tokens(questions: Sequence[QuestionTokens]) -> int:
    """The original's count: what all questions share once, then each row behind it in full.

    The shared part ends before the last token in front of a question's first option.
    """
    shared = min(question.opens[0] - 1 for question in questions)
    first = questions[0].token_ids
    for question in questions[1:]:
        shared = _common(first, question.token_ids, shared)
    shared = max(1, shared)
    return shared + sum(
        question.opens[0] - shared + closed - opened + 1
        for question in questions
        for opened, closed in zip(question.opens, question.closes, strict=True)
    )


def _common(first: list[int], second: list[int], limit: int) -> int:
    """How many of their first `limit` tokens are equal; by halves, as slices compare fast."""
    low, high = 0, limit
    while low < high:
        middle = (low + high + 1) // 2
        if first[low:middle] == second[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


class PromptWriter:
    """The checkpoint's template and tokenizer; raises CheckpointError where they do not fit."""

    def __init__(self, folder: Path) -> None:
        self._template = ChatTemplate.load(folder)
        tokenizer = load_tokenizer(folder)
        self._encoder = TextEncoder(tokenizer)
        self.num_tokens = tokenizer.get_vocab_size()
        marks = (OPEN, CLOSE, IMAGE_PLACEHOLDER)
        file = folder / "tokenizer.json"
        self.open_id, self.close_id, self.image_id = single_tokens(tokenizer, marks, file)
        self._check_template()

    def text(self, asked: Asked, pictures: Pictures) -> str:
        """The rendered prompt: the pictures, the instructions, then every option's block."""
        return self._head(asked, pictures) + _blocks(asked)

    def tokens(self, asked: Asked, pictures: Pictures) -> QuestionTokens:
        """The prompt's tokens, placeholders grown to their pictures' size."""
        head = self._head(asked, pictures)
        token_ids = self._encoder.encode_joined(head, _blocks(asked))
        grown, spans = place_images(token_ids, self.image_id, pictures.images)
        opens = _places(grown, self.open_id)
        closes = _places(grown, self.close_id)
        assert len(opens) == len(closes) == len(asked.texts), "text spelled an option marker"
        return QuestionTokens(grown, spans, opens, closes)

    def _head(self, asked: Asked, pictures: Pictures) -> str:
        content = [*pictures.content, {"type": "text", "text": asked.instructions}]
        return self._template.render([{"role": "user", "content": content}])

    def _check_template(self) -> None:
        """It must write picture and text as they are, one after the other."""
        content = [{"type": "image"}, {"type": "text", "text": "x"}]
        text = self._template.render([{"role": "user", "content": content}])
        if text.count(_PICTURE + "x") != 1 or text.count(IMAGE_PLACEHOLDER) != 1:
            raise CheckpointError(
                f"{self._template.file}: shows a picture and the text 'x' as {text[-200:]!r}; "
                "fetch the template of this checkpoint"
            )


def _blocks(asked: Asked) -> str:
    return "".join(f"{OPEN}{text}{CLOSE}" for text in asked.texts)


def _places(token_ids: list[int], token: int) -> tuple[int, ...]:
    """Where a token stands."""
    found: list[int] = []
    at = -1
    for _ in range(token_ids.count(token)):
        at = token_ids.index(token, at + 1)
        found.append(at)
    return tuple(found)
