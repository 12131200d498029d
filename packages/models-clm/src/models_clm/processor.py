"""Requests to texts, embeddings to questions, cosines to answers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from models_clm.cache import EmbeddingCache
from models_clm.checkpoint import HeadFiles
from models_clm.decision import Decision, Step
from models_clm.grammar import ClmRequest
from models_clm.prompts import Cosines, ScorePrompt
from models_clm.source import TextSource
from models_clm.text import texts_of
from system1_core.answers import Answer, ChoiceAnswer, NoulAnswer, Result, ScoreAnswer, softmax
from system1_core.errors import InvalidRequest
from system1_core.processor import Prepared, Processor, Prompt
from system1_core.request import EMPTY, Question, Request

# Names by which the server finds this family without naming a head.
_NO_HEAD = ("", "clm", "jev-latest")


class ClmProcessor(Processor):
    """Round after round: embed what the cache lacks, then score every question."""

    def __init__(self, heads: HeadFiles, source: TextSource, cache: EmbeddingCache) -> None:
        self._heads = heads
        self._source = source
        self._cache = cache
        self.names = heads.names

    def prepare(self, request: Request) -> Prepared:
        decision = Decision(
            questions=request.questions,
            texts=[texts_of(request.state, question) for question in request.questions],
            model=self._model(request.model),
            temperature=request.temperature if isinstance(request, ClmRequest) else 1.0,
        )
        decision.passes = self._source.passes(decision.texts)
        return self._next(decision)

    def finish(self, context: Step, outputs: Sequence[Any]) -> Result | Prepared:
        decision = context.decision
        if context.embedded is None:
            return self._result(decision, outputs)
        for text, embedded in zip(context.embedded, outputs, strict=True):
            decision.embedded[text] = embedded
            decision.num_tokens += embedded.num_tokens
        self._cache.put(zip(context.embedded, outputs, strict=True))
        return self._next(decision)

    def _model(self, name: str | None) -> str:
        """The name that will be shown; raises InvalidRequest for one that nothing answers to."""
        if name is not None and name in self.names:
            return name
        if name is None or name in _NO_HEAD:
            return self.names[0]
        listed = ", ".join(self.names)
        raise InvalidRequest.at(
            ("model",), f"unknown model {name[:100]!r}; available: {listed}", input=name
        )

    def _next(self, decision: Decision) -> Prepared:
        """The next texts to embed; the questions when there are none."""
        while decision.passes:
            texts = [text for text in decision.passes.pop(0) if text not in decision.embedded]
            known = self._cache.get(texts)
            decision.embedded |= known
            if missing := [text for text in texts if text not in known]:
                # Texts of one request share calls with no other's: the key is the request.
                prompts = self._source.prompts(missing, decision)
                return Prepared(prompts, Step(decision, missing))
        return Prepared(self._score_prompts(decision), Step(decision))

    def _score_prompts(self, decision: Decision) -> list[Prompt]:
        head = self._heads.resolve(decision.model)
        vectors = {text: embedded.vector for text, embedded in decision.embedded.items()}
        return [
            ScorePrompt(
                (),
                batch_key=("score", head),
                head=head,
                state=vectors[texts.state],
                candidates=tuple(vectors[text] for text in texts.candidates),
                texts=texts.candidates,
            )
            for texts in decision.texts
        ]

    def _result(self, decision: Decision, outputs: Iterable[Cosines]) -> Result:
        answers = []
        asked = zip(decision.questions, decision.texts, outputs, strict=True)
        for question, texts, cosines in asked:
            logits = [cosines.scale * value for value in cosines.values]
            probabilities = softmax(logits, decision.temperature)
            extra = {"x_truncated": True} if decision.is_cut(texts) else EMPTY
            answers.append(_ANSWER[question.type](question, probabilities, extra))
        return Result(answers=answers, input_tokens=decision.num_tokens, model=decision.model)


def _choice(question: Question, probabilities: list[float], extra: Any) -> Answer:
    named = dict(zip(question.options, probabilities, strict=True))
    return ChoiceAnswer(probabilities=named, extra=extra)


def _score(question: Question, probabilities: list[float], extra: Any) -> Answer:
    return ScoreAnswer(probabilities=probabilities, extra=extra)


def _noul(question: Question, probabilities: list[float], extra: Any) -> Answer:
    return NoulAnswer(probability=probabilities[1], extra=extra)


_ANSWER: dict[str, Callable[[Question, list[float], Any], Answer]] = {
    "choice": _choice,
    "score": _score,
    "noul": _noul,
}
