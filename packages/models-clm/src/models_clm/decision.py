"""One request on its way through the rounds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from models_clm.prompts import Embedded
from models_clm.text import Texts
from system1_core.request import Question


@dataclass(slots=True, eq=False)
class Decision:
    """What is asked, what is embedded, and the passes of texts still to embed."""

    questions: tuple[Question, ...]
    texts: list[Texts]
    model: str
    temperature: float
    passes: list[list[str]] = field(default_factory=list)
    embedded: dict[str, Embedded] = field(default_factory=dict)
    num_tokens: int = 0

    def is_cut(self, texts: Texts) -> bool:
        """Whether the encoder saw only the end of a text of one question."""
        return any(self.embedded[text].is_cut for text in (texts.state, *texts.candidates))

    def place_of(self, text: str) -> tuple[Question, str]:
        """The first question that has this text, and what the text is to it."""
        for question, texts in zip(self.questions, self.texts, strict=True):
            if text == texts.state:
                return question, "state and instructions"
            if text in texts.candidates:
                return question, f"option {question.options[texts.candidates.index(text)]!r}"
        raise KeyError(text)


@dataclass(frozen=True, slots=True)
class Step:
    """What `finish` continues: the texts that were embedded, None when cosines came back."""

    decision: Decision
    embedded: Sequence[str] | None = None
