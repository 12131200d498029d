"""The host side: a request to rows, rows' outputs to answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from models_omnijev.calibration import Calibration
from models_omnijev.checks import check_texts, check_tokens
from models_omnijev.heads import OptionScorer, RowOutput, level_probabilities
from models_omnijev.limits import LIMITS
from models_omnijev.mentions import Mentions
from models_omnijev.pictures import make_pictures
from models_omnijev.prompt import PromptWriter, RowPrompt
from models_omnijev.questions import Asked, OmnijevRequest, make_asked
from models_qwen3_5.images import ImageSettings
from system1_core.answers import Answer, ChoiceAnswer, NoulAnswer, Result, ScoreAnswer
from system1_core.processor import Prepared, Processor
from system1_core.request import Question, Request


@dataclass(frozen=True, slots=True)
class _Context:
    """For each question, which prompts are its rows: equal rows of a request run once."""

    questions: tuple[Question, ...]
    asked: tuple[Asked, ...]
    rows: tuple[tuple[int, ...], ...]
    input_tokens: int


class OmnijevProcessor(Processor):
    """Rows are whole sequences; the backbone's planner finds what they share."""

    def __init__(
        self,
        writer: PromptWriter,
        *,
        settings: ImageSettings,
        scorer: OptionScorer,
        calibration: Calibration,
        max_positions: int,
    ) -> None:
        self.writer = writer
        self.scorer = scorer
        self.calibration = calibration
        self.settings = settings
        self.max_tokens = min(LIMITS.sequence_tokens, max_positions)

    def prepare(self, request: Request) -> Prepared:
        asked = _asked(request)
        check_texts(request.questions, asked)
        video = request.video if isinstance(request, OmnijevRequest) else None
        pictures = make_pictures(request.images, video, self.settings)
        tokens = [self.writer.tokens(each, pictures) for each in asked]
        total = check_tokens(request.questions, tokens, self.max_tokens)
        prompts: dict[tuple[bool, bytes], int] = {}
        unique: list[RowPrompt] = []
        rows = []
        for question, each in zip(asked, tokens, strict=True):
            places = []
            for row in each.rows(is_level=question.type == "score"):
                # Every row of a request has the same pictures, so its tokens say what it is.
                key = (row.is_level, row.key.tobytes())
                if prompts.setdefault(key, len(unique)) == len(unique):
                    unique.append(row)
                places.append(prompts[key])
            rows.append(tuple(places))
        return Prepared(unique, _Context(request.questions, asked, tuple(rows), total))

    def finish(self, context: _Context, outputs: Sequence[RowOutput]) -> Result:
        answers = [
            self._answer(question, asked, [outputs[place] for place in places])
            for question, asked, places in zip(
                context.questions, context.asked, context.rows, strict=True
            )
        ]
        return Result(answers=answers, input_tokens=context.input_tokens)

    def _answer(self, question: Question, asked: Asked, rows: Sequence[RowOutput]) -> Answer:
        extra = {"x_truncated": True} if asked.is_cut else {}
        if asked.type == "noul":
            mu = self.scorer.mu("noul", rows)
            return NoulAnswer(probability=self.calibration.noul(float(mu[0])), extra=extra)
        if asked.type == "score":
            levels = self.calibration.score(level_probabilities(rows).tolist())
            top = asked.keys[levels.index(max(levels))]
            return ScoreAnswer(probabilities=levels, extra={"x_level": top, **extra})
        chosen = self.calibration.choice(self.scorer.mu("choice", rows).tolist())
        # What is left after abstention, so that the protocol's probabilities sum to 1.
        total = sum(chosen.probabilities)
        shares = [p / total for p in chosen.probabilities]
        return ChoiceAnswer(
            probabilities=dict(zip(question.options, shares, strict=True)),
            extra={
                "x_probabilities": dict(zip(question.options, chosen.probabilities, strict=True)),
                "x_abstain": chosen.abstain,
                "x_valid": chosen.is_valid,
                **extra,
            },
        )


def _asked(request: Request) -> tuple[Asked, ...]:
    """Every question as the model reads it: the state's text precedes each."""
    if isinstance(request, OmnijevRequest):
        return tuple(question.asked.behind(request.state) for question in request.questions)
    mentions = Mentions(request.images)
    state = mentions.state_text(request.state)
    return tuple(make_asked(question, mentions).behind(state) for question in request.questions)
