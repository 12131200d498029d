"""The settings of the family."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from system1_core.errors import ConfigError
from system1_core.family import Option

DEFAULT_URL = "http://127.0.0.1:8090/v1/embeddings"
DEFAULT_MODEL = "qwen3-8b"
TRUNCATE_TOKENS = 2_048
TIMEOUT_S = 300.0
CACHE_TEXTS = 200_000
_SWITCHED_OFF = ("", "none")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClmOptions:
    """Where embeddings come from, and which head is the default; times in seconds.

    `truncate_tokens` is 0 for no limit. Raises ConfigError where two settings exclude each other.
    """

    embeddings_url: str | None = None
    embeddings_model: str = DEFAULT_MODEL
    embeddings_key: str | None = None
    embeddings_key_file: Path | None = None
    embeddings_timeout_s: float = TIMEOUT_S
    truncate_tokens: int = TRUNCATE_TOKENS
    cache_texts: int = CACHE_TEXTS
    encoder: Path | None = None
    default: str | None = None

    def __post_init__(self) -> None:
        if self.encoder is not None and self.embeddings_url is not None:
            raise ConfigError(
                "--option clm.encoder and --option clm.embeddings_url: embeddings come from one "
                "of them; leave the other out"
            )
        if self.embeddings_key is not None and self.embeddings_key_file is not None:
            raise ConfigError(
                "--option clm.embeddings_key and --option clm.embeddings_key_file: give one of them"
            )

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> ClmOptions:
        """From a family's option values; what is not there keeps its default."""
        names = {field.name for field in fields(cls)}
        return cls(**{name: value for name, value in options.items() if name in names})

    @property
    def url(self) -> str:
        """The embedding server's address."""
        return self.embeddings_url or DEFAULT_URL

    def read_key(self) -> str | None:
        """The key for the embedding server; raises ConfigError for a file that holds none."""
        if self.embeddings_key_file is None:
            return self.embeddings_key
        where = f"--option clm.embeddings_key_file={self.embeddings_key_file}"
        try:
            lines = self.embeddings_key_file.read_text("utf-8").split()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"{where}: {error}") from None
        if len(lines) != 1:
            raise ConfigError(
                f"{where}: found {len(lines)} words, expected one key and nothing else"
            )
        return parse_key(lines[0])


def parse_url(text: str) -> str:
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"{text!r} is no address: use for instance {DEFAULT_URL}")
    if parts.username or parts.password or parts.query or parts.fragment:
        raise ValueError(
            "an address with a password, a query or a fragment is not used; give a key with "
            "clm.embeddings_key_file"
        )
    return text


def parse_key(text: str) -> str:
    if not text or not text.isascii() or not text.isprintable() or " " in text:
        raise ValueError("a key is printable ASCII without spaces")
    return text


def parse_name(text: str) -> str:
    if not text.strip():
        raise ValueError("the name is empty: give one")
    return text.strip()


def parse_folder(text: str) -> Path:
    path = Path(text).expanduser()
    if not path.is_dir():
        raise ValueError(f"there is no folder {text!r}")
    return path.resolve()


def parse_file(text: str) -> Path:
    return Path(text).expanduser()


def parse_tokens(text: str) -> int:
    if text.strip().lower() in _SWITCHED_OFF:
        return 0
    return _count(text, "a number of tokens, or 0 for no limit")


def parse_texts(text: str) -> int:
    return _count(text, "a number of texts, or 0 for no cache")


def parse_seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds < math.inf:
        raise ValueError(f"{text!r} is out of range: use a number of seconds above 0")
    return seconds


def _count(text: str, expected: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise ValueError(f"{text!r} is no count: use {expected}")
    return int(text)


OPTIONS = (
    Option(
        name="embeddings_url",
        help=f"OpenAI-style embedding server ({DEFAULT_URL})",
        parse=parse_url,
    ),
    Option(
        name="embeddings_model",
        help="the model's name at the embedding server",
        default=DEFAULT_MODEL,
        parse=parse_name,
    ),
    Option(
        name="embeddings_key",
        help="bearer key for the embedding server; a process list shows it, a file does not",
        parse=parse_key,
    ),
    Option(
        name="embeddings_key_file",
        help="file that holds the bearer key for the embedding server",
        parse=parse_file,
    ),
    Option(
        name="embeddings_timeout_s",
        help="seconds to wait for the embedding server",
        default=TIMEOUT_S,
        parse=parse_seconds,
    ),
    Option(
        name="encoder",
        help="folder of a dense Qwen3 checkpoint: embeddings are computed in this process",
        parse=parse_folder,
    ),
    Option(
        name="truncate_tokens",
        help="tokens of a text that are kept, its last ones; 0 for no limit",
        default=TRUNCATE_TOKENS,
        parse=parse_tokens,
    ),
    Option(
        name="cache_texts",
        help="embeddings kept in memory, least recently used ones go first; 0 for none",
        default=CACHE_TEXTS,
        parse=parse_texts,
    ),
    Option(
        name="default",
        help="the head that clm-latest means, where the folder holds several",
        parse=parse_name,
    ),
)
