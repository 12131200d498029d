"""From a request to texts to encode, and from their vectors to answers."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from models_mini.cache import Encoded, VectorCache
from models_mini.checkpoint import MiniCheckpoint
from models_mini.head import Head
from models_mini.text import choice_texts, entry_text, noul_texts, plain_text, score_texts
from models_mini.tokens import WindowedTokenizer
from system1_core import (
    Answer,
    ChoiceAnswer,
    InvalidRequest,
    NoulAnswer,
    Prepared,
    Processor,
    Prompt,
    Question,
    Request,
    Result,
    ScoreAnswer,
    softmax,
)

MAX_STATE_TOKENS = 16_384  # 37 windows: some three seconds of two cores
# Checked before anything walks the text; English has some five characters a token.
MAX_STATE_CHARS = 120_000
MAX_CANDIDATE_CHARS = 12_000


@dataclass(frozen=True, slots=True)
class _Text:
    """A text of the request: its prompts by index, or what the cache knew of it."""

    first: int = 0
    window_lengths: tuple[int, ...] = ()
    num_tokens: int = 0
    known: Encoded | None = None


@dataclass(frozen=True, slots=True)
class _Asked:
    """A question, the state as its type reads it, and its candidates in answer order."""

    question: Question
    state: str
    candidates: list[str]


@dataclass(slots=True)
class _Plan:
    """What one request needs: questions, distinct texts, and the prompts of those not known."""

    asked: list[_Asked]
    states: dict[str, _Text]
    candidates: dict[str, _Text]
    prompts: list[Prompt]


class MiniProcessor(Processor):
    """Every distinct text is one vector: the state once, each candidate once and then cached."""

    def __init__(self, checkpoint: MiniCheckpoint, cache_bytes: int) -> None:
        config = checkpoint.config
        tokenizer = Tokenizer.from_str(checkpoint.read("tokenizer.json").decode())
        self._tokenizer = WindowedTokenizer(tokenizer, config["max_positions"])
        self._head = Head.from_bytes(checkpoint.read("head.npz"))
        self._temperatures = config["temperatures"]
        self.cache = VectorCache(cache_bytes)

    def prepare(self, request: Request) -> Prepared:
        plan = _Plan(_asked(request), {}, {}, [])
        for asked in plan.asked:
            if asked.state not in plan.states:
                plan.states[asked.state] = self._add_state(plan, asked.state)
            for index, text in enumerate(asked.candidates):
                if text not in plan.candidates:
                    plan.candidates[text] = self._add_candidate(plan, asked.question, index, text)
        return Prepared(plan.prompts, context=plan)

    def _add_state(self, plan: _Plan, text: str) -> _Text:
        ids = self._tokenizer.ids(text)
        if len(ids) > MAX_STATE_TOKENS:
            msg = f"state: {len(ids)} tokens, limit {MAX_STATE_TOKENS}"
            raise InvalidRequest.at(("state",), msg, "too_long")
        return _add(plan, self._tokenizer.windows(ids))

    def _add_candidate(self, plan: _Plan, question: Question, index: int, text: str) -> _Text:
        known = self.cache.get(text)
        if known is not None:
            return _Text(num_tokens=known.num_tokens, known=known)
        what = f"instructions with {_candidate_name(question, index)}"
        if len(text) > MAX_CANDIDATE_CHARS:
            msg = f"{what}: {len(text)} characters, limit {MAX_CANDIDATE_CHARS}"
            raise question.invalid(msg, type="too_long")
        ids = self._tokenizer.ids(text)
        limit = self._tokenizer.max_positions - 2
        if len(ids) > limit:
            msg = f"{what}: {len(ids)} tokens, limit {limit}"
            raise question.invalid(msg, type="too_long")
        return _add(plan, self._tokenizer.windows(ids))

    def finish(self, context: Any, outputs: Sequence[Any]) -> Result:
        plan: _Plan = context
        states = {text: _vector(place, outputs) for text, place in plan.states.items()}
        candidates = {}
        for text, place in plan.candidates.items():
            candidates[text] = place.known.vector if place.known else _vector(place, outputs)
            if not place.known:
                self.cache.put(text, Encoded(candidates[text], place.num_tokens))
        answers = [
            self._answer(
                asked,
                states[asked.state],
                np.stack([candidates[text] for text in asked.candidates]),
                len(plan.states[asked.state].window_lengths),
            )
            for asked in plan.asked
        ]
        return Result(answers=answers, input_tokens=_tokens(plan))

    def _answer(
        self,
        asked: _Asked,
        state: NDArray[np.float32],
        candidates: NDArray[np.float32],
        num_windows: int,
    ) -> Answer:
        type = asked.question.type
        logits = self._head.logits(type, state, candidates).tolist()
        chances = softmax(logits, self._temperatures[type])
        extra = {"x_windows": num_windows} if num_windows > 1 else {}
        if type == "noul":
            return NoulAnswer(probability=chances[1], extra=extra)
        if type == "score":
            return ScoreAnswer(probabilities=chances, extra=extra)
        named = dict(zip(asked.question.options, chances, strict=True))
        return ChoiceAnswer(probabilities=named, extra=extra)


def _asked(request: Request) -> list[_Asked]:
    full = entry_text(request.state)
    if len(full) > MAX_STATE_CHARS:
        msg = f"state: {len(full)} characters, limit {MAX_STATE_CHARS}: send the part that matters"
        raise InvalidRequest.at(("state",), msg, "too_long")
    plain = plain_text(request.state)
    return [
        _Asked(question, plain if question.type == "noul" else full, _candidates(question))
        for question in request.questions
    ]


def _candidates(question: Question) -> list[str]:
    if question.type == "choice":
        return choice_texts(question.instructions, question.criteria)
    if question.type == "score":
        return score_texts(question.instructions, question.criteria)
    return noul_texts(question.instructions, question.criteria)


def _candidate_name(question: Question, index: int) -> str:
    kind = {"choice": "option", "score": "level", "noul": "side"}[question.type]
    return f"{kind} {question.options[index]!r}"


def _add(plan: _Plan, windows: list[list[int]]) -> _Text:
    first = len(plan.prompts)
    plan.prompts.extend(Prompt(window) for window in windows)
    lengths = tuple(map(len, windows))
    return _Text(first, lengths, sum(lengths))


def _vector(text: _Text, outputs: Sequence[NDArray[np.float32]]) -> NDArray[np.float32]:
    """The unit vector of a text: the mean over its windows, weighted by their tokens."""
    windows = outputs[text.first : text.first + len(text.window_lengths)]
    total = np.asarray(text.window_lengths, np.float32) @ np.stack(windows)
    unit: NDArray[np.float32] = total / max(float(np.linalg.norm(total)), 1e-12)
    return unit


def _tokens(plan: _Plan) -> int:
    """What was read, the same whether the cache knew it or not."""
    texts = [*plan.states.values(), *plan.candidates.values()]
    return sum(text.num_tokens for text in texts)
