"""From logits to answers: temperatures, windows, and what an answer says beside its numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from models_laya.reading import Reading
from models_laya.rounds import Entry, Session, slots_of
from models_laya.routing import routing_json
from system1_core.answers import Answer, ChoiceAnswer, NoulAnswer, Result, ScoreAnswer, softmax


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The answer to one entry: probabilities in the order of its options, the window it is from."""

    probabilities: tuple[float, ...]
    act_probability: float
    window: int


def decide(session: Session, entry: Entry, readings: Sequence[Reading]) -> Outcome:
    """The answer of the window that speaks loudest: P(true) for a noul, else the top option."""
    type = session.asked[entry.index].type
    temperature = session.part.config.temperatures.of(type, len(entry.options))
    slots = slots_of(session, entry.index, entry.options)
    position = {option: slot for slot, option in enumerate(slots)}
    by_window = []
    for reading in readings:
        p = softmax(reading.logits, temperature)
        by_window.append(tuple(p[position[option]] for option in entry.options))
    strength = [p[1] if type == "noul" else max(p) for p in by_window]
    best = first_best(strength)
    return Outcome(
        probabilities=by_window[best],
        act_probability=readings[best].act_probability,
        window=best,
    )


def first_best(values: Sequence[float]) -> int:
    return max(range(len(values)), key=values.__getitem__)


def make_result(
    session: Session,
    entries: Sequence[Entry],
    outcomes: Sequence[Outcome],
    folders: Mapping[str, str],
) -> Result:
    answers = [
        _answer(session, entry, outcome) for entry, outcome in zip(entries, outcomes, strict=True)
    ]
    extra: dict[str, Any] = {"x_routing": routing_json(session.route, folders)}
    if entries:
        extra["x_usage"] = _usage(session, entries)
    return Result(
        answers=answers,
        input_tokens=session.input_tokens,
        model=f"laya-{session.part.name}",
        extra=extra,
    )


def _answer(session: Session, entry: Entry, outcome: Outcome) -> Answer:
    asked = session.asked[entry.index]
    extra = _answer_extra(session, entry, outcome)
    if asked.type == "noul":
        return NoulAnswer(probability=outcome.probabilities[1], extra=extra)
    if asked.type == "score":
        return ScoreAnswer(probabilities=outcome.probabilities, extra=extra)
    by_option = dict(zip(entry.options, outcome.probabilities, strict=True))
    return ChoiceAnswer(
        probabilities={
            label: by_option.get(index, 0.0) for index, label in enumerate(asked.labels)
        },
        extra=extra,
    )


def _answer_extra(session: Session, entry: Entry, outcome: Outcome) -> dict[str, Any]:
    asked, frame = session.asked[entry.index], entry.frame
    extra: dict[str, Any] = {"x_action": {"act_probability": outcome.act_probability}}
    parts = (*frame.cut, "state") if entry.windows[0].is_cut else frame.cut
    if parts:
        extra["x_truncated"] = True
        extra["x_truncated_parts"] = list(parts)
    if len(entry.windows) > 1:
        window = entry.windows[outcome.window]
        extra["x_window"] = {
            "index": outcome.window,
            "token_start": window.begin,
            "token_end": window.end,
            "count": len(entry.windows),
        }
    if entry.index in session.rounds:
        extra["x_tournament"] = {
            "finalists": [asked.labels[option] for option in entry.options],
            "rounds": session.rounds[entry.index],
        }
        if asked.order is not None:
            extra["x_tournament"]["option_order_dropped"] = True
    return extra


def _usage(session: Session, entries: Sequence[Entry]) -> dict[str, Any]:
    """What happened to the texts, in the original's names."""
    total = len(session.state_ids)
    dropped = {
        session.asked[entry.index].question.id: total - (window.end - window.begin)
        for entry in entries
        if (window := entry.windows[0]).is_cut
    }
    usage: dict[str, Any] = {
        "state_tokens": total,
        "state_tokens_dropped": max(dropped.values(), default=0),
        "truncated": bool(dropped),
        "truncated_questions": list(dropped),
    }
    options = {
        session.asked[entry.index].question.id: {
            "total": len(entry.options),
            "distinct": entry.frame.num_distinct,
            "tokens_per_option": entry.frame.tokens_per_option,
        }
        for entry in entries
        if entry.frame.num_distinct < len(entry.options)
    }
    if options:
        usage["options"] = options
    if any(len(entry.windows) > 1 for entry in entries):
        usage["windows"] = max(len(entry.windows) for entry in entries)
    return usage
