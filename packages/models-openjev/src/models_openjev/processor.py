"""The host side: questions to candidates, scores to answers."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from models_openjev.checkpoint import MERGED_FORMAT, Source
from models_openjev.tokens import AUTOMATIC, Tokens, open_tokenizer
from models_qwen3_5.export import is_export, read_export
from models_qwen3_5.sequence import Reads, SequencePrompt, make_key
from system1_core.answers import Answer, ChoiceAnswer, NoulAnswer, Result, ScoreAnswer, softmax
from system1_core.errors import InferenceFailed, TooLarge, abridged
from system1_core.family import Load
from system1_core.processor import Prepared, Processor
from system1_core.request import Question, Request

logger = logging.getLogger("system1")

# The original's limit on candidates alone would let one body ask for gigabytes of token ids.
MAX_REQUEST_TOKENS = 2**24


@dataclass(frozen=True, slots=True)
class _Parts:
    """A question's candidates as token ids: what they share, and how each ends."""

    question: Question
    start: list[int]
    endings: list[list[int]]


@dataclass(frozen=True, slots=True)
class _Context:
    questions: tuple[Question, ...]
    num_candidates: tuple[int, ...]
    num_tokens: int


class OpenJevProcessor(Processor):
    """One sequence for each candidate answer; candidates never see one another."""

    def __init__(self, source: Source, *, split: str = AUTOMATIC) -> None:
        self._source = source
        tokenizer = open_tokenizer(source, split)
        self._tokens = Tokens(tokenizer, source.prefix, source.suffix)
        self._tokens.check(source.base / "tokenizer.json")
        published = (source.published.name,) if source.published else ()
        self.names = ("open-jev", *published, source.model_id)

    def prepare(self, request: Request) -> Prepared:
        head = self._tokens.head(request.state)
        parts = []
        total = 0
        for question in request.questions:
            each = self._parts(head, question)
            total += sum(self._lengths(each))
            if total > MAX_REQUEST_TOKENS:
                raise TooLarge(
                    f"over {total} tokens in all candidates up to question "
                    f"{abridged(question.id)!r}, limit {MAX_REQUEST_TOKENS}: "
                    "ask in several requests"
                )
            parts.append(each)
        context = _Context(request.questions, tuple(len(each.endings) for each in parts), total)
        return Prepared([prompt for each in parts for prompt in _prompts(each)], context)

    def finish(self, context: _Context, outputs: Sequence[float]) -> Result:
        answers: list[Answer] = []
        at = 0
        for question, count in zip(context.questions, context.num_candidates, strict=True):
            answers.append(self._answer(question, outputs[at : at + count]))
            at += count
        return Result(
            answers=answers,
            input_tokens=context.num_tokens,
            extra={"x_metadata": self._metadata(at)},
        )

    def _parts(self, head: list[int], question: Question) -> _Parts:
        start = head + self._tokens.question(question)
        # A start that leaves no room is refused before its candidates are encoded.
        self._check_length(question, len(start) + 1)
        parts = _Parts(question, start, self._tokens.candidates(question))
        for length in self._lengths(parts):
            self._check_length(question, length)
        return parts

    def _lengths(self, parts: _Parts) -> list[int]:
        return [len(parts.start) + len(ending) for ending in parts.endings]

    def _check_length(self, question: Question, length: int) -> None:
        if length > self._source.max_length:
            raise question.invalid(
                f"a candidate takes at least {length} tokens with its state, limit "
                f"{self._source.max_length}; nothing is cut: shorten the state or the texts",
                type="too_long",
            )

    def _answer(self, question: Question, scores: Sequence[float]) -> Answer:
        if not all(map(math.isfinite, scores)):
            logger.error("openjev: question %r: a score is not finite", question.id)
            raise InferenceFailed
        is_noul = question.type == "noul"
        chances = softmax([0.0, *scores] if is_noul else scores, self._source.temperature)
        if is_noul:
            return NoulAnswer(probability=chances[1])
        if question.type == "score":
            return ScoreAnswer(probabilities=chances)
        return ChoiceAnswer(probabilities=dict(zip(question.options, chances, strict=True)))

    def _metadata(self, num_candidates: int) -> dict[str, Any]:
        source = self._source
        return {
            "model_id": source.model_id,
            "base_revision": source.base_revision,
            "checkpoint_revision": source.checkpoint_revision,
            "temperature": source.temperature,
            "max_length": source.max_length,
            "candidate_sequences": num_candidates,
        }


def load_processor(load: Load, source: Source) -> OpenJevProcessor:
    """The processor of a checkpoint; of an export it proves the small files it reads."""
    if source.is_merged and is_export(source.base):
        read_export(source.base, MERGED_FORMAT, weights=False)
    return OpenJevProcessor(source, split=load.options.get("split") or AUTOMATIC)


def _prompts(parts: _Parts) -> Iterator[SequencePrompt]:
    start = make_key(parts.start)
    for ending in parts.endings:
        token_ids = parts.start + ending
        key = np.concatenate((start, make_key(ending)))
        yield SequencePrompt(token_ids, reads=Reads(hidden=(len(token_ids) - 1,)), key=key)
