"""Whether a state is English: scripts first, then function words and letters.

A detector of this project's own. It answers one question, whether the English checkpoint can
read a text, and names a language only as far as that needs it.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from models_laya.function_words import ENGLISH, FUNCTION_WORDS

MAX_CHARACTERS = 4_000
# Fewer words than this say nothing about a language in Latin script.
MIN_WORDS = 4
# Hits by which another language's words must beat the English ones.
MARGIN = 2
NON_ENGLISH_LETTERS = 0.02
RESCUED_BELOW = 0.06
NON_LATIN_SHARE = 0.20
SMALL_NON_LATIN_SHARE = 0.10
SMALL_NON_LATIN_LETTERS = 10

_WORD = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)*")
# Close relatives share most of their short words: a word of both belongs to the pair.
_PAIRS = {"no": "da", "sk": "cs", "ca": "es"}
_OWNERS: dict[str, set[str]] = {}
for _language, _words in FUNCTION_WORDS.items():
    for _word in _words:
        _OWNERS.setdefault(_word, set()).add(_PAIRS.get(_language, _language))
_ENGLISH_ONLY = {word for word in FUNCTION_WORDS[ENGLISH] if len(_OWNERS[word]) == 1}


@dataclass(frozen=True, slots=True, kw_only=True)
class Detection:
    """What a text looks like; `verdict` is True for English, False for not, None for undecided."""

    verdict: bool | None
    reason: str
    script: str = "unknown"
    script_profile: Mapping[str, float] = field(default_factory=dict)
    language: str | None = None
    diacritic_rate: float = 0.0
    non_latin_fraction: float = 0.0
    mixed_segment: str | None = None

    def as_json(self) -> dict[str, Any]:
        """The `detection` block of a response."""
        return {
            "script": self.script,
            "script_profile": dict(self.script_profile),
            "language": self.language,
            "is_english": self.verdict is not False,
            "language_undecided": self.language is None,
            "diacritic_rate": self.diacritic_rate,
            "non_latin_fraction": self.non_latin_fraction,
            "mixed_segment": self.mixed_segment,
        }


def detect(state: Any) -> Detection:
    """Look at the text values of a state, their first 4000 characters."""
    segments = list(_texts(state))
    text = "\n".join(segments)[:MAX_CHARACTERS]
    scripts = Counter(script for letter in text if (script := script_of(letter)))
    total = sum(scripts.values())
    if not total:
        return Detection(verdict=None, reason="no letters in the state")
    foreign = total - scripts["latin"]
    facts: dict[str, Any] = {
        "script": scripts.most_common(1)[0][0],
        "script_profile": {name: round(n / total, 4) for name, n in scripts.most_common()},
        "non_latin_fraction": round(foreign / total, 4),
        "diacritic_rate": round(_diacritic_rate(text), 4),
    }
    if _is_foreign_script(facts["script"], foreign, total):
        name = next(script for script, _ in scripts.most_common() if script != "latin")
        reason = f"{foreign} of {total} letters are not Latin ({name})"
        return Detection(verdict=False, reason=reason, **facts)
    return _judge_latin(text, segments, facts)


def _judge_latin(text: str, segments: Sequence[str], facts: Mapping[str, Any]) -> Detection:
    language, verdict = _language_of(text)
    if verdict is False:
        named = language or "another language"
        reason = f"Latin script, reads as {named!r}"
        return Detection(verdict=False, reason=reason, language=language, **facts)
    for segment in _lines(segments):
        # One line among many must be sure: a name or a quoted word is not a language.
        other, is_english = _language_of(segment)
        if is_english is False and other is not None and len(segment) < len(text):
            return Detection(
                verdict=False,
                reason=f"mostly English, but one line reads as {other!r}",
                language=other,
                mixed_segment=segment[:200],
                **facts,
            )
    if verdict is None:
        reason = "Latin script, language not identified"
        return Detection(verdict=None, reason=reason, **facts)
    return Detection(verdict=True, reason="English text", language=ENGLISH, **facts)


def _language_of(text: str) -> tuple[str | None, bool | None]:
    """(language, whether it is English); None where the text does not say."""
    words = [word.replace("’", "'") for word in _WORD.findall(text.lower())]
    is_long = len(words) + sum("'" in word for word in words) >= MIN_WORDS
    hits = {
        language: sum(word in known for word in words) for language, known in FUNCTION_WORDS.items()
    }
    english = hits.pop(ENGLISH)
    other = _strongest(words, hits, english)
    if is_long and other is not None and hits[other] >= english + MARGIN:
        return other, False
    rate = _diacritic_rate(text)
    if rate >= NON_ENGLISH_LETTERS:
        rescuers = sum(word in _ENGLISH_ONLY for word in words)
        if rescuers < 2 or rate >= RESCUED_BELOW:
            return other, False
    if is_long and english > (0 if other is None else hits[other]):
        return ENGLISH, True
    return None, None


def _strongest(words: Sequence[str], hits: Mapping[str, int], english: int) -> str | None:
    """The language with most hits among those the text cannot share with another.

    A language qualifies by a word of its own, or by having most hits alone where none is English.
    """
    own = {next(iter(owners)) for word in words if len(owners := _OWNERS.get(word, ())) == 1}
    named = [
        language for language in hits if hits[language] and _PAIRS.get(language, language) in own
    ]
    if not named and english == 0:
        top = max(hits.values())
        named = [language for language in hits if hits[language] == top >= MARGIN]
        named = named if len(named) == 1 else []
    return max(named, key=hits.__getitem__, default=None)


def _is_foreign_script(script: str, foreign: int, total: int) -> bool:
    """A plurality, a fifth of the letters, or a tenth and ten of them."""
    share = foreign / total
    small = share >= SMALL_NON_LATIN_SHARE and foreign >= SMALL_NON_LATIN_LETTERS
    return script != "latin" or share >= NON_LATIN_SHARE or small


def _diacritic_rate(text: str) -> float:
    """Latin letters outside ASCII, a character of the text."""
    marked = sum(not letter.isascii() and script_of(letter) == "latin" for letter in text)
    return marked / max(1, len(text))


def _lines(segments: Sequence[str]) -> Iterator[str]:
    for segment in segments:
        for line in segment.splitlines():
            if line.strip():
                yield line.strip()


def _texts(value: Any) -> Iterator[str]:
    """String values, depth first, in their order; keys are not text."""
    stack = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, str):
            yield item
        elif isinstance(item, Mapping):
            stack.extend(reversed(list(item.values())))
        elif isinstance(item, Sequence):
            stack.extend(reversed(item))


@lru_cache(16_384)
def script_of(letter: str) -> str | None:
    """The script of a letter by its Unicode name, None for anything that is no letter."""
    if not letter.isalpha():
        return None
    words = unicodedata.name(letter, "").split()
    if words and words[0] in ("FULLWIDTH", "HALFWIDTH", "MATHEMATICAL"):
        words = words[1:] if words[0] != "MATHEMATICAL" else ["LATIN"]
    if not words or words[0] in ("MODIFIER", "FEMININE", "MASCULINE", "MICRO"):
        return None
    return {"CJK": "han", "IDEOGRAPHIC": "han"}.get(words[0], words[0].lower())
