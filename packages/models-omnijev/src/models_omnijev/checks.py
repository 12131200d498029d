"""What one request may hold, checked before any device work."""

from __future__ import annotations

from collections.abc import Sequence

from models_omnijev.limits import LIMITS
from models_omnijev.prompt import QuestionTokens, input_tokens
from models_omnijev.questions import REFUSED_STRINGS, Asked
from system1_core.errors import InvalidRequest
from system1_core.request import Question


def check_texts(questions: Sequence[Question], asked: Sequence[Asked]) -> None:
    """Counts, lengths, and text that spells a marker of the prompt. Raises InvalidRequest."""
    if len(questions) > LIMITS.questions:
        msg = f"{len(questions)} questions, limit {LIMITS.questions}; ask in several requests"
        raise InvalidRequest.at(("questions",), msg, "too_long")
    for question, each in zip(questions, asked, strict=True):
        _check_question(question, each)
    total = sum(len(each.texts) for each in asked)
    _check_total(total, LIMITS.total_options, "options and levels")


def check_tokens(
    questions: Sequence[Question], tokens: Sequence[QuestionTokens], max_tokens: int
) -> int:
    """Each question as one sequence, and all together, which is returned, as they count.

    Raises InvalidRequest.
    """
    for question, each in zip(questions, tokens, strict=True):
        if len(each.token_ids) > max_tokens:
            msg = f"{len(each.token_ids)} tokens with pictures and options, limit {max_tokens}"
            raise question.invalid(f"{msg}; shorten it", type="too_long")
    # A score's levels are not read token by token.
    read = sum(
        each.num_option_tokens
        for question, each in zip(questions, tokens, strict=True)
        if question.type != "score"
    )
    _check_total(read, LIMITS.option_tokens, "tokens of options")
    total = input_tokens(tokens)
    _check_total(total, LIMITS.total_tokens, "tokens")
    return total


def _check_question(question: Question, asked: Asked) -> None:
    counts = (
        (len(question.id), LIMITS.id_chars, "characters in its id"),
        (len(asked.texts), LIMITS.options, "options or levels"),
        (len(asked.instructions), LIMITS.text_chars, "characters of state and instructions"),
        (asked.longest, LIMITS.text_chars, "characters in one option"),
    )
    for count, limit, what in counts:
        if count > limit:
            raise question.invalid(f"{count} {what}, limit {limit}; shorten it", type="too_long")
    for where, texts in (("instructions", (asked.instructions,)), ("option", asked.texts)):
        for text in texts:
            for refused in REFUSED_STRINGS:
                if refused in text:
                    msg = f"text holds {refused!r}, which marks the prompt; take it out"
                    raise question.invalid(msg, where, input=text)


def _check_total(count: int, limit: int, what: str) -> None:
    if count > limit:
        msg = f"questions: {count} {what} in all, limit {limit}; ask in several requests"
        raise InvalidRequest.at(("questions",), msg, "too_long")
