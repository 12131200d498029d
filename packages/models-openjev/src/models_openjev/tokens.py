"""A checkpoint's tokenizer, and candidates as token ids without encoding a state twice."""

from __future__ import annotations

from pathlib import Path

from tokenizers import Tokenizer

from models_openjev.checkpoint import Source, read_json
from models_openjev.text import candidate_texts, head_text, question_text
from models_qwen3_5.chat import encode, load_tokenizer
from models_qwen3_5.config import read_config
from models_qwen3_5.encoder import TextEncoder
from system1_core.errors import CheckpointError
from system1_core.request import Question

# What `openjev.split` may name beside the rules themselves.
AUTOMATIC = "auto"
# The class that the base's tokenizer_config.json names. Transformers 5, with which the original
# runs, loads it with a rule of its own in place of the file's.
_OWN_RULE_CLASS = "Qwen2Tokenizer"
_OWN_RULE = "no-marks"
_PROBES = ("", "a ", "x\n \n", "1.", "<|im_end|>\n", "  \t")


def split_rule(source: Source, named: str) -> str | None:
    """The rule that splits words for this checkpoint, None for the one in its tokenizer.json.

    A merged export carries the rule that was in effect when it was made.
    """
    if named != AUTOMATIC:
        return None if named == "file" else named
    if source.is_merged:
        return None
    file = source.base / "tokenizer_config.json"
    is_own = file.is_file() and read_json(file).get("tokenizer_class") == _OWN_RULE_CLASS
    return _OWN_RULE if is_own else None


def open_tokenizer(source: Source, named: str) -> Tokenizer:
    """The tokenizer of a checkpoint. Raises CheckpointError where it has more tokens than the
    model has rows."""
    tokenizer = load_tokenizer(source.base, split_rule(source, named))
    rows = read_config(source.base).text.vocab_size
    if (size := tokenizer.get_vocab_size()) > rows:
        raise CheckpointError(
            f"{source.base / 'tokenizer.json'}: {size} tokens, the model has {rows} rows; "
            "fetch the tokenizer of this checkpoint"
        )
    return tokenizer


class Tokens:
    """Turns the parts of candidates into token ids.

    Each part ends with a newline and the next begins with a letter. The rule that splits words
    never joins the two, so the parts together have the tokens of the whole, which is what the
    original encodes; `check` proves it for a tokenizer at load.
    """

    def __init__(self, tokenizer: Tokenizer, prefix: str, suffix: str) -> None:
        self._tokenizer = tokenizer
        self._encoder = TextEncoder(tokenizer)
        self._prefix = prefix
        self._suffix = suffix

    def head(self, state: object) -> list[int]:
        """Up to the question; the same for every candidate of a request."""
        return self._encoder.encode(self._prefix + head_text(state))

    def question(self, question: Question) -> list[int]:
        return list(self._encoder.encode_kept(question_text(question)))

    def candidates(self, question: Question) -> list[list[int]]:
        """What tells the candidates apart, up to the end of the prompt."""
        kept = self._encoder.encode_kept
        return [list(kept(text + self._suffix)) for text in candidate_texts(question)]

    def whole(self, state: object, question: Question) -> list[list[int]]:
        """Every candidate of a question, encoded in one piece by the tokenizer itself."""
        text = self._prefix + head_text(state) + question_text(question)
        return [
            encode(self._tokenizer, text + ending + self._suffix)
            for ending in candidate_texts(question)
        ]

    def check(self, file: Path) -> None:
        """Raise CheckpointError for a tokenizer that joins what lies on both sides of a line's
        end."""
        for probe in _PROBES:
            question = Question(id="", type="choice", instructions=probe, criteria={probe: None})
            start = self.head(probe) + self.question(question)
            parts = [start + ending for ending in self.candidates(question)]
            if parts != self.whole(probe, question):
                raise CheckpointError(
                    f"{file}: joins words over the end of a line (seen with {probe!r}), which no "
                    f"tokenizer of Qwen3.5 does; fetch the tokenizer of this checkpoint"
                )
