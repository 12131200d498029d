"""A checkpoint's own chat template and tokenizer."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from jinja2 import TemplateError
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment
from tokenizers import Regex, Tokenizer, pre_tokenizers
from tokenizers.pre_tokenizers import ByteLevel, Split

from models_qwen3_5.images import PreparedImage
from models_qwen3_5.sequence import ImageSpan
from system1_core.errors import CheckpointError

IMAGE_PLACEHOLDER = "<|image_pad|>"
# How words are split before BPE. The Hub's tokenizer.json keeps combining marks with their letters;
# the class that Transformers 5 takes for it does not, and exports saved by it carry its rule. The
# two differ for Hindi and Thai, for instance; a file's own rule is used unless one is asked for.
SPLIT_RULES = {
    "marks": (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}"
        r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    ),
    "no-marks": (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
        r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    ),
}
Message = Mapping[str, Any]


class ChatTemplate:
    """Renders messages with the checkpoint's Jinja file, in a sandbox without files or imports."""

    def __init__(self, source: str, file: Path) -> None:
        self.file = file
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols]
        )
        environment.filters["tojson"] = _tojson
        environment.globals["raise_exception"] = _raise_exception
        try:
            self._template = environment.from_string(source)
        except TemplateError as error:
            raise CheckpointError(
                f"{file}: is no Jinja template: {error}; fetch the file again"
            ) from error

    @classmethod
    def load(cls, folder: Path) -> ChatTemplate:
        """The template in `chat_template.jinja`, else the one in `tokenizer_config.json`.

        Raises CheckpointError where neither holds one.
        """
        file = folder / "chat_template.jinja"
        if file.is_file():
            return cls(file.read_text(encoding="utf-8"), file)
        file = folder / "tokenizer_config.json"
        try:
            source = json.loads(file.read_text(encoding="utf-8")).get("chat_template")
        except (OSError, ValueError, AttributeError) as error:
            raise CheckpointError(f"{file}: {error}; fetch the tokenizer's files") from error
        if not isinstance(source, str):
            raise CheckpointError(
                f"{folder}: found neither chat_template.jinja nor a chat_template in "
                "tokenizer_config.json; serve a chat checkpoint"
            )
        return cls(source, file)

    def render(self, messages: Sequence[Message], **variables: Any) -> str:
        """The prompt up to the point where the assistant answers.

        Raises CheckpointError for a template that refuses the messages or leaves the sandbox.
        """
        try:
            return self._template.render(messages=messages, add_generation_prompt=True, **variables)
        except (TemplateError, TypeError, ValueError, OverflowError) as error:
            raise CheckpointError(
                f"{self.file}: cannot render these messages: {error}; fetch the file again"
            ) from error


def _tojson(value: Any, indent: int | None = None) -> str:
    # Jinja's own filter escapes for HTML.
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _raise_exception(message: str) -> NoReturn:
    raise TemplateError(message)


def load_tokenizer(folder: Path, split: str | None = None) -> Tokenizer:
    """The tokenizer of a checkpoint, which neither cuts nor pads; `split` names one of SPLIT_RULES
    to use in place of the file's.

    Raises CheckpointError for a missing or unsound file.
    """
    file = folder / "tokenizer.json"
    if not file.is_file():
        raise CheckpointError(f"{file}: missing; fetch it from the checkpoint's repository")
    try:
        tokenizer = Tokenizer.from_file(str(file))
    except Exception as error:  # the library raises nothing more precise
        raise CheckpointError(f"{file}: is no tokenizer: {error}; fetch it again") from error
    if split is not None:
        rule = Split(Regex(SPLIT_RULES[split]), behavior="isolated")
        bytes_of = ByteLevel(add_prefix_space=False, use_regex=False)
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([rule, bytes_of])
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def encode(tokenizer: Tokenizer, text: str) -> list[int]:
    """Token ids of a rendered prompt; added tokens spelled in it count as such, none is added."""
    return tokenizer.encode(text, add_special_tokens=False).ids


def single_tokens(tokenizer: Tokenizer, texts: Sequence[str], file: Path) -> tuple[int, ...]:
    """The one token of each text; raises CheckpointError where a text takes more."""
    token_ids = [encode(tokenizer, text) for text in texts]
    for text, found in zip(texts, token_ids, strict=True):
        if len(found) != 1:
            raise CheckpointError(
                f"{file}: {text!r} takes {len(found)} tokens, expected 1; "
                "serve a checkpoint with its own tokenizer"
            )
    return tuple(found[0] for found in token_ids)


def place_images(
    token_ids: Sequence[int], image_token_id: int, images: Sequence[PreparedImage]
) -> tuple[list[int], tuple[ImageSpan, ...]]:
    """Each placeholder, in order, grown to its image's tokens; the sequence and the spans.

    Raises ValueError unless there are as many placeholders as images.
    """
    found = token_ids.count(image_token_id)
    if found != len(images):
        raise ValueError(f"{found} image placeholders for {len(images)} images")
    grown: list[int] = []
    spans: list[ImageSpan] = []
    end = 0
    for image in images:
        place = token_ids.index(image_token_id, end)
        grown.extend(token_ids[end:place])
        spans.append(ImageSpan(len(grown), image))
        grown.extend([image_token_id] * image.num_tokens)
        end = place + 1
    grown.extend(token_ids[end:])
    return grown, tuple(spans)
