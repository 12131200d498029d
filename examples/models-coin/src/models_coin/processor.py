"""Text to prompts, outputs to answers."""

from collections.abc import Sequence

from system1_core import (
    Answer,
    ChoiceAnswer,
    NoulAnswer,
    Prepared,
    Processor,
    Prompt,
    Question,
    Request,
    ScoreAnswer,
    json_text,
    one_hot,
)


class CoinProcessor(Processor):
    """One prompt a question: the bytes of the state stand for its tokens."""

    def prepare(self, request: Request) -> Prepared:
        token_ids = list(json_text(request.state).encode())
        return Prepared([Prompt(token_ids) for _ in request.questions], request.questions)

    def finish(self, context: Sequence[Question], outputs: Sequence[int]) -> list[Answer]:
        return [answer(question, index) for question, index in zip(context, outputs, strict=True)]


def answer(question: Question, index: int) -> Answer:
    """Certainty for the option at `index`."""
    probabilities = one_hot(question.options, index)
    if question.type == "choice":
        return ChoiceAnswer(probabilities=probabilities)
    if question.type == "score":
        return ScoreAnswer(probabilities=list(probabilities.values()))
    return NoulAnswer(probability=probabilities["true"])
