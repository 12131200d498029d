"""What a question looks like to the model: its instructions and the texts of its options."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from models_omnijev.mentions import Mentions
from system1_core.request import Question, Request, json_text

# Longer option texts are cut, as the model was trained; Unicode code points.
MAX_OPTION_CHARS = 200
TYPES = ("noul", "choice", "score")
# They mark spans and images, and would move them; other special strings are harmless as text.
REFUSED_STRINGS = (
    "<|opt|>",
    "<|/opt|>",
    "<|image_pad|>",
    "<|video_pad|>",
    "<|vision_start|>",
    "<|vision_end|>",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One question as the model reads it.

    `texts` has one entry for each option or level, for a noul one that is mostly empty. `keys`
    names them in the original's answers, in the JSON type the request gave. `longest` is the length
    of the longest text before it was cut to what the model reads.
    """

    type: str
    instructions: str
    keys: tuple[Any, ...]
    texts: tuple[str, ...]
    longest: int = 0

    @classmethod
    def of(
        cls, type: str, instructions: str, keys: tuple[Any, ...], texts: tuple[str, ...]
    ) -> Asked:
        """The question, its option texts cut to what the model reads."""
        return cls(
            type=type,
            instructions=instructions,
            keys=keys,
            texts=tuple(text[:MAX_OPTION_CHARS] for text in texts),
            longest=max(map(len, texts)),
        )

    @property
    def is_cut(self) -> bool:
        return self.longest > MAX_OPTION_CHARS

    def behind(self, state: str) -> Asked:
        """The question with the state's text in front of its instructions."""
        if not state:
            return self
        return replace(self, instructions=f"{state}\n{self.instructions}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Video:
    """A mosaic of frames, row by row, in the first image; `tile` is a frame's side in pixels.

    `duration` and `timestamps` are seconds, shown as they are.
    """

    n_frames: int
    cols: int
    tile: int
    timestamps: tuple[int | float, ...]
    duration: int | float


@dataclass(frozen=True, slots=True, kw_only=True)
class OmnijevQuestion(Question):
    """A question in the original's grammar. Its criteria are stand-ins: see `asked`."""

    asked: Asked


@dataclass(frozen=True, slots=True, kw_only=True)
class OmnijevRequest(Request):
    """A request in the original's grammar; `state` is the text in front of every instructions."""

    questions: tuple[OmnijevQuestion, ...]
    video: Video | None = None


def make_asked(question: Question, mentions: Mentions) -> Asked:
    """The model's view of a question in the protocol's grammar.

    An option is its name, or `name: entry`. A noul's sides follow its instructions as lines.
    Entries that are no strings are written as JSON.
    """
    instructions = "" if question.instructions is None else _text(question.instructions, mentions)
    criteria = question.criteria
    if question.type == "choice":
        entries = {name: _entry_text(entry, mentions) for name, entry in criteria.items()}
        texts = tuple(f"{name}: {entry}" if entry else name for name, entry in entries.items())
        return Asked.of("choice", instructions, tuple(entries), texts)
    if question.type == "score":
        levels = tuple(_text(level, mentions) for level in criteria)
        return Asked.of("score", instructions, tuple(criteria), levels)
    lines = [instructions] if instructions else []
    for side, word in (("true", "Yes"), ("false", "No")):
        if entry := _entry_text((criteria or {}).get(side), mentions):
            lines.append(f"{word}: {entry}")
    return Asked.of("noul", "\n".join(lines), ("yes",), ("",))


def _entry_text(entry: Any, mentions: Mentions) -> str:
    return "" if entry is None else _text(entry, mentions)


def _text(value: Any, mentions: Mentions) -> str:
    return json_text(mentions.named(value))
