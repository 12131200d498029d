"""How texts become prompts: sent to a server as they are, or tokenised for our own encoder."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from tokenizers import Tokenizer

from models_clm.decision import Decision
from models_clm.prompts import TextPrompt
from models_clm.text import Texts
from system1_core.errors import InvalidRequest, TooLarge, abridged
from system1_core.processor import Prompt


class TextSource(Protocol):
    """What the processor asks of either."""

    def passes(self, asked: Sequence[Texts]) -> list[list[str]]:
        """The distinct texts of a request in first-seen order, by round of embedding."""
        ...

    def prompts(self, texts: Sequence[str], decision: Decision) -> list[Prompt]:
        """Prompts for texts without an embedding, all of one request."""
        ...


class ServerTexts:
    """States first, then candidates, as the original calls its server."""

    def passes(self, asked: Sequence[Texts]) -> list[list[str]]:
        return [_states(asked), _candidates(asked)]

    def prompts(self, texts: Sequence[str], decision: Decision) -> list[Prompt]:
        # The request is the key: no call mixes texts of two requests.
        return [TextPrompt((), batch_key=decision, text=text) for text in texts]


class TokenisedTexts:
    """Token ids, cut to the last `truncate_tokens` (0: never); `limit` is the encoder's own."""

    def __init__(self, tokenizer: Tokenizer, truncate_tokens: int, limit: int) -> None:
        self._tokenizer = tokenizer
        self._truncate_tokens = truncate_tokens
        self._limit = limit

    def passes(self, asked: Sequence[Texts]) -> list[list[str]]:
        return [list(dict.fromkeys(_states(asked) + _candidates(asked)))]

    def prompts(self, texts: Sequence[str], decision: Decision) -> list[Prompt]:
        """Raises InvalidRequest for a text without tokens, TooLarge for one over the limit."""
        encodings = self._tokenizer.encode_batch(list(texts))
        return [
            self._prompt(text, encoding.ids, decision)
            for text, encoding in zip(texts, encodings, strict=True)
        ]

    def _prompt(self, text: str, token_ids: list[int], decision: Decision) -> Prompt:
        if not token_ids:
            raise _empty(text, decision)
        # The question stands at the end of a state text: keep the tail.
        kept = token_ids[-self._truncate_tokens :] if self._truncate_tokens else token_ids
        if len(kept) > self._limit:
            question, part = decision.place_of(text)
            raise TooLarge(
                f"question {abridged(question.id)!r}: {part}: {len(kept)} tokens, "
                f"the encoder reads at most {self._limit}; shorten the text "
                "or set clm.truncate_tokens"
            )
        is_cut = len(kept) < len(token_ids)
        return TextPrompt(kept, batch_key="texts", text=text, is_cut=is_cut)


def _states(asked: Sequence[Texts]) -> list[str]:
    return list(dict.fromkeys(texts.state for texts in asked))


def _candidates(asked: Sequence[Texts]) -> list[str]:
    return list(dict.fromkeys(text for texts in asked for text in texts.candidates))


def _empty(text: str, decision: Decision) -> InvalidRequest:
    question, part = decision.place_of(text)
    return question.invalid(f"{part}: the text is empty, say something for the encoder to read")
