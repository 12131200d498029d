"""From a request to texts to encode, and from their vectors to answers."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from models_mini.cache import Encoded, VectorCache
from models_mini.checkpoint import MiniCheckpoint
from models_mini.head import Head
from models_mini.plan import Asked, Place, Plan, State
from models_mini.readout import Readout
from models_mini.temperature import temperature_key
from models_mini.text import (
    choice_texts,
    entry_text,
    noul_text,
    noul_texts,
    plain_text,
    score_texts,
)
from models_mini.tokens import WindowedTokenizer
from system1_core import (
    Answer,
    ChoiceAnswer,
    InvalidRequest,
    NoulAnswer,
    Prepared,
    Processor,
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


class MiniProcessor(Processor):
    """Every distinct text is read once; what does not read the state is cached."""

    def __init__(self, checkpoint: MiniCheckpoint, cache_bytes: int) -> None:
        config = checkpoint.config
        tokenizer = Tokenizer.from_str(checkpoint.read("tokenizer.json").decode())
        self._tokenizer = WindowedTokenizer(tokenizer, config["max_positions"])
        self._head = Head.from_bytes(checkpoint.read("head.npz"))
        self._readouts = {type: Readout.parse(n) for type, n in config["readouts"].items()}
        self._temperatures = config["temperatures"]
        self.cache = VectorCache(cache_bytes)

    def prepare(self, request: Request) -> Prepared:
        plan = Plan(_asked(request, self._readouts))
        for asked in plan.asked:
            if asked.state not in plan.states:
                plan.states[asked.state] = self._state(asked.state)
            for index, text in enumerate(asked.candidates):
                self._add_candidate(plan, asked, index, text)
        plan.make_prompts()
        return Prepared(plan.prompts, context=plan)

    def _state(self, text: str) -> State:
        ids = self._tokenizer.ids(text)
        if len(ids) > MAX_STATE_TOKENS:
            msg = f"state: {len(ids)} tokens, limit {MAX_STATE_TOKENS}"
            raise InvalidRequest.at(("state",), msg, "too_long")
        windows = self._tokenizer.windows(ids)
        return State(windows, Place(sum(map(len, windows))))

    def _add_candidate(self, plan: Plan, asked: Asked, index: int, text: str) -> None:
        state = plan.states[asked.state]
        if asked.readout.is_pooled:
            state.is_read_alone = True
            if text in plan.pooled:
                return
            known = self.cache.get(text)
            if known is not None:
                plan.pooled[text] = [], Place(known.num_tokens, known=known)
                return
            ids = self._candidate_ids(asked, index, text)
            plan.pooled[text] = ids, Place(len(ids))
        elif asked.readout.is_joint:
            if text not in state.joint:
                ids = self._candidate_ids(asked, index, text)
                state.joint[text] = ids, Place(len(ids)), Place(0)
        elif (text, asked.readout) not in state.beside:
            ids = self._candidate_ids(asked, index, text)
            state.beside[text, asked.readout] = ids, Place(len(ids))

    def _candidate_ids(self, asked: Asked, index: int, text: str) -> list[int]:
        what = f"instructions with {_candidate_name(asked, index)}"
        if len(text) > MAX_CANDIDATE_CHARS:
            msg = f"{what}: {len(text)} characters, limit {MAX_CANDIDATE_CHARS}"
            raise asked.question.invalid(msg, type="too_long")
        ids = self._tokenizer.ids(text)
        limit = self._tokenizer.max_positions - 2
        if len(ids) > limit:
            msg = f"{what}: {len(ids)} tokens, limit {limit}"
            raise asked.question.invalid(msg, type="too_long")
        return self._tokenizer.windows(ids)[0]

    def finish(self, context: Any, outputs: Sequence[Any]) -> Result:
        plan: Plan = context
        states = {
            text: state.place.vector(outputs)
            for text, state in plan.states.items()
            if state.place.outputs
        }
        pooled = {text: place.vector(outputs) for text, (_, place) in plan.pooled.items()}
        for text, (_, place) in plan.pooled.items():
            if place.known is None:
                self.cache.put(text, Encoded(pooled[text], place.num_tokens))
        answers = []
        for asked in plan.asked:
            state = plan.states[asked.state]
            found = [
                _pair(asked.readout, state, states.get(asked.state), text, pooled, outputs)
                for text in asked.candidates
            ]
            answers.append(self._answer(asked, found, len(state.windows)))
        return Result(answers=answers, input_tokens=plan.num_tokens)

    def _answer(self, asked: Asked, found: list[Any], num_windows: int) -> Answer:
        type = asked.question.type
        pairs = np.stack([state for state, _ in found]), np.stack([one for _, one in found])
        logits = self._head.logits(type, *pairs).tolist()
        if asked.readout.is_single:
            logits = [0.0, *logits]
        chances = softmax(logits, self._temperatures[temperature_key(type, len(logits))])
        extra = {"x_windows": num_windows} if num_windows > 1 else {}
        if type == "noul":
            return NoulAnswer(probability=chances[1], extra=extra)
        if type == "score":
            return ScoreAnswer(probabilities=chances, extra=extra)
        named = dict(zip(asked.question.options, chances, strict=True))
        return ChoiceAnswer(probabilities=named, extra=extra)


def _pair(
    readout: Readout,
    state: State,
    vector: NDArray[np.float32] | None,
    text: str,
    pooled: dict[str, NDArray[np.float32]],
    outputs: Sequence[Any],
) -> tuple[Any, NDArray[np.float32]]:
    """The state's vector and the candidate's, as the readout has them."""
    if readout.is_joint:
        _, place, own_state = state.joint[text]
        return own_state.vector(outputs), place.vector(outputs)
    if readout.is_pooled:
        return vector, pooled[text]
    return vector, state.beside[text, readout][1].vector(outputs)


def _asked(request: Request, readouts: dict[str, Readout]) -> list[Asked]:
    full = entry_text(request.state)
    if len(full) > MAX_STATE_CHARS:
        msg = f"state: {len(full)} characters, limit {MAX_STATE_CHARS}: send the part that matters"
        raise InvalidRequest.at(("state",), msg, "too_long")
    plain = plain_text(request.state)
    return [
        Asked(
            question,
            readouts[question.type],
            plain if question.type == "noul" else full,
            _candidates(question, readouts[question.type]),
        )
        for question in request.questions
    ]


def _candidates(question: Question, readout: Readout) -> list[str]:
    if question.type == "choice":
        return choice_texts(question.instructions, question.criteria)
    if question.type == "score":
        return score_texts(question.instructions, question.criteria)
    if readout.is_single:
        return [noul_text(question.instructions, question.criteria)]
    return noul_texts(question.instructions, question.criteria)


def _candidate_name(asked: Asked, index: int) -> str:
    if asked.readout.is_single:
        return "both sides"
    kind = {"choice": "option", "score": "level", "noul": "side"}[asked.question.type]
    return f"{kind} {asked.question.options[index]!r}"
