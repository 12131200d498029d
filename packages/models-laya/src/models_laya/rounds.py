"""The rounds of one request: what is asked of the network, and with which tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from models_laya.config import QUESTION_TYPE_IDS, LayaConfig
from models_laya.questions import Asked
from models_laya.routing import Route
from models_laya.tokens import Frame, LayaPrompt, Tokens
from models_laya.tournament import Tournament
from models_laya.windows import Window, cut, windows_of
from system1_core.errors import TooLarge
from system1_core.processor import Prepared


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """The host side of one loaded checkpoint."""

    name: str
    folder: str
    config: LayaConfig
    tokens: Tokens


@dataclass(slots=True, kw_only=True)
class Session:
    """One request on its way through its rounds."""

    part: Part
    route: Route
    asked: Sequence[Asked]
    state_ids: Sequence[int]
    keeps_end: bool
    max_len: int
    head_max_len: int
    long_state: str
    tournament: Tournament | None
    alive: dict[int, tuple[int, ...]]
    rounds: dict[int, int] = field(default_factory=dict)
    input_tokens: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One question, or one heat of it, in one round: one prompt for each window of the state."""

    index: int
    options: tuple[int, ...]
    frame: Frame
    windows: tuple[Window, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """What `finish` reads."""

    session: Session
    entries: Sequence[Entry]
    is_final: bool


def next_round(session: Session) -> Prepared:
    """Heats of every choice that is still too large; the whole request once none is."""
    tournament = session.tournament
    wide = [
        index
        for index in session.rounds
        if tournament is not None and len(session.alive[index]) > tournament.group
    ]
    if wide and tournament is not None:
        heats = [(index, heat) for index in wide for heat in tournament.heats(session.alive[index])]
    else:
        heats = list(session.alive.items())
    entries = _enter(session, heats)
    prompts = [_prompt(session, entry, window) for entry in entries for window in entry.windows]
    session.input_tokens += sum(prompt.num_tokens for prompt in prompts)
    return Prepared(prompts, Round(session=session, entries=entries, is_final=not wide))


def _enter(session: Session, heats: Sequence[tuple[int, tuple[int, ...]]]) -> list[Entry]:
    frames = [_frame(session, index, options) for index, options in heats]
    smallest = min((frame.room for frame in frames), default=0)
    return [
        Entry(
            index=index,
            options=options,
            frame=frame,
            windows=_windows(session, session.asked[index], frame, smallest),
        )
        for (index, options), frame in zip(heats, frames, strict=True)
    ]


def slots_of(session: Session, index: int, options: Sequence[int]) -> tuple[int, ...]:
    """Option indices in slot order; a tournament drops a slot order that was given."""
    order = None if index in session.rounds else session.asked[index].order
    return tuple(options) if order is None else order


def _frame(session: Session, index: int, options: tuple[int, ...]) -> Frame:
    asked = session.asked[index]
    texts = [asked.texts[slot] for slot in slots_of(session, index, options)]
    frame = session.part.tokens.frame(asked.head, texts, session.max_len, session.head_max_len)
    if not frame.fits:
        raise asked.question.invalid(
            f"the markers of its {len(options)} options do not fit: the question alone takes "
            f"{len(frame.prefix)} tokens, limit {session.max_len}; send fewer or shorter options",
            "criteria",
        )
    return frame


def _windows(
    session: Session, asked: Asked, frame: Frame, smallest_room: int
) -> tuple[Window, ...]:
    total = len(session.state_ids)
    if total <= frame.room:
        return (Window(begin=0, end=total),)
    if session.long_state == "reject":
        raise TooLarge(
            f"question {asked.question.id!r}: the state has {total} tokens and {frame.room} of "
            f"the {session.max_len} remain beside the question; shorten the state, or serve with "
            "long_state=cut or long_state=window"
        )
    if session.long_state == "cut":
        return (cut(total, frame.room, keeps_end=session.keeps_end),)
    size = max(64, session.max_len - session.head_max_len - 8)
    return windows_of(total, min(size, smallest_room), asked.question)


def _prompt(session: Session, entry: Entry, window: Window) -> LayaPrompt:
    type_id = QUESTION_TYPE_IDS[session.asked[entry.index].type]
    state = session.state_ids[window.begin : window.end]
    return session.part.tokens.prompt(entry.frame, state, type_id, session.part.name)
