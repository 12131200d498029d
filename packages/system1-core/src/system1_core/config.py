"""What `system1 serve` was asked to do, checked once."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from system1_core.errors import ConfigError
from system1_core.family import ModelFamily
from system1_core.wire.dialect import RequestLimits
from system1_core.wire.transport import TransportLimits

DEVICES = ("auto", "cpu", "cuda", "mps")
DTYPES = ("auto", "float32", "bfloat16", "fp8")
PROFILES = ("protocol", "reference")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelChoice:
    """One NAME[=FOLDER] of the command line."""

    name: str
    folder: Path | None = None

    @classmethod
    def parse(cls, text: str) -> ModelChoice:
        """Raises ConfigError for an empty name or a folder that does not exist."""
        name, equals, folder = text.partition("=")
        if not name or (equals and not folder):
            raise ConfigError(f"{text!r} is not NAME or NAME=FOLDER")
        if not equals:
            if Path(name).is_dir():
                raise ConfigError(f"{name!r} is a folder: say which model it is, as NAME={name}")
            return cls(name=name)
        path = Path(folder).expanduser()
        if not path.is_dir():
            raise ConfigError(f"{text!r}: there is no folder {folder!r}")
        return cls(name=name, folder=path.resolve())


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeConfig:
    """Settings of one server process; times in seconds, sizes in bytes."""

    models: Sequence[ModelChoice] = ()
    options: Sequence[str] = ()
    host: str = "127.0.0.1"
    port: int = 8000
    device: str = "auto"
    dtype: str = "auto"
    profile: str = "protocol"
    scheduler: str = "batch"
    deterministic: bool = False
    require_pinned: bool = False
    api_key_file: Path | None = None
    cors_origins: Sequence[str] = ()
    root_path: str = ""
    request_timeout_s: float = 60.0
    drain_timeout_s: float = 30.0
    max_queued_requests: int = 1_024
    max_queued_prompts: int = 16_384
    transport: TransportLimits = field(default_factory=TransportLimits)
    limits: RequestLimits = field(default_factory=RequestLimits)

    def __post_init__(self) -> None:
        _one_of("--device", self.device, DEVICES)
        _one_of("--dtype", self.dtype, DTYPES)
        _one_of("--profile", self.profile, PROFILES)
        if not 0 <= self.port <= 65535:
            raise ConfigError(f"--port {self.port}: expected 0 to 65535")
        above_zero("--request-timeout", self.request_timeout_s)
        above_zero("--drain-timeout", self.drain_timeout_s)
        above_zero("--max-queue", self.max_queued_requests)
        above_zero("--max-questions", self.limits.max_questions)
        above_zero("--max-text-chars", self.limits.max_text_chars)
        for origin in self.cors_origins:
            if origin != "*" and not re.fullmatch(r"https?://[^/\s]+", origin):
                raise ConfigError(
                    f"--cors-origin {origin!r}: expected scheme and host, without a path, such as "
                    "https://app.example.com"
                )
        if self.root_path and not re.fullmatch(r"(/[\w.~-]+)+", self.root_path):
            raise ConfigError(f"--root-path {self.root_path!r}: expected a path such as /prefix")


def _one_of(option: str, value: str, allowed: Sequence[str]) -> None:
    if value not in allowed:
        raise ConfigError(f"{option} {value!r}: expected one of {', '.join(allowed)}")


def above_zero(option: str, value: float) -> None:
    """Raises ConfigError, naming the option, for a number that is no limit."""
    if not (value > 0 and math.isfinite(value)):
        raise ConfigError(f"{option} {value:g}: expected a finite number above 0")


def family_options(family: ModelFamily, given: Sequence[str]) -> Mapping[str, Any]:
    """The family's options from `NAME.KEY=VALUE` texts, defaults filled in.

    Texts for other families are passed over; see `check_options`. Raises ConfigError for a value
    that its option refuses.
    """
    declared = {_plain(option.name): option for option in family.options}
    values = {option.name: option.default for option in family.options}
    for text in given:
        name, key, value = _split_option(text)
        if not _is_for(family, name) or key not in declared:
            continue
        try:
            values[declared[key].name] = declared[key].parse(value)
        except ValueError as error:
            raise ConfigError(f"--option {text!r}: {error}") from None
    return values


def check_options(families: Sequence[ModelFamily], given: Sequence[str]) -> None:
    """Refuse an option that no served family declares."""
    for text in given:
        name, key, _ = _split_option(text)
        meant = [family for family in families if _is_for(family, name)]
        if not meant:
            served = ", ".join(family.name for family in families)
            raise ConfigError(f"--option {text!r}: {name!r} is not served; served: {served}")
        known = sorted({option.name for family in meant for option in family.options})
        if key not in map(_plain, known):
            listed = ", ".join(known) or "none"
            raise ConfigError(f"--option {text!r}: {name} has no {key!r}; it has: {listed}")


def _is_for(family: ModelFamily, name: str) -> bool:
    """`laya` means the family of that name and its siblings, `laya-english` and so on."""
    return family.name == name or family.name.startswith(f"{name}-")


def _split_option(text: str) -> tuple[str, str, str]:
    path, equals, value = text.partition("=")
    name, dot, key = path.partition(".")
    if not (equals and dot and name and key):
        raise ConfigError(f"--option {text!r}: expected NAME.KEY=VALUE")
    return name, _plain(key), value


def _plain(key: str) -> str:
    """Keys may be written with - or _."""
    return key.replace("-", "_")
