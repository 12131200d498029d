"""The settings of the family."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from models_laya.checkpoint import NAMES
from system1_core.family import Option

LONG_STATES = ("cut", "window", "reject")
MAX_TOKEN_BUDGET = 8_192


@dataclass(frozen=True, slots=True, kw_only=True)
class LayaOptions:
    """What the processor reads of the options."""

    tournament_group: int | None = None
    long_state: str = "cut"
    max_len: int | None = None
    head_max_len: int | None = None

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> LayaOptions:
        """From a family's option values; what is not there keeps its default."""
        names = {field.name for field in fields(cls)}
        return cls(**{name: value for name, value in options.items() if name in names})


def parse_group(text: str) -> int:
    group = _integer(text, "a number from 2 to 100, or 0 for no tournament")
    if group != 0 and not 2 <= group <= 100:
        raise ValueError(f"{group} is out of range: use 2 to 100, or 0 for no tournament")
    return group


def parse_budget(text: str) -> int:
    budget = _integer(text, f"a number of tokens from 1 to {MAX_TOKEN_BUDGET}")
    if not 1 <= budget <= MAX_TOKEN_BUDGET:
        raise ValueError(f"{budget} is out of range: use 1 to {MAX_TOKEN_BUDGET} tokens")
    return budget


def parse_threads(text: str) -> int:
    threads = _integer(text, "a number of CPU threads, at least 1")
    if threads < 1:
        raise ValueError(f"{threads} is out of range: use at least 1 thread")
    return threads


def parse_switch(text: str) -> bool:
    value = text.strip().lower()
    if value in ("1", "true", "yes", "on"):
        return True
    if value in ("0", "false", "no", "off", ""):
        return False
    raise ValueError(f"{text!r} is no switch: use true or false")


def parse_long_state(text: str) -> str:
    if text not in LONG_STATES:
        raise ValueError(f"{text!r} is unknown: use one of {', '.join(LONG_STATES)}")
    return text


def parse_checkpoint(text: str) -> str:
    if text not in NAMES:
        raise ValueError(f"{text!r} is no checkpoint: use one of {', '.join(NAMES)}")
    return text


def parse_checkpoints(text: str) -> tuple[str, ...]:
    return tuple(parse_checkpoint(name.strip()) for name in text.split(","))


def _integer(text: str, expected: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"{text!r} is no number: use {expected}") from None


COMMON_OPTIONS = (
    Option(
        name="tournament_group",
        help="split choices over this many options into heats (protocol: over 100, in heats of "
        "32; reference: never; 0: never)",
        parse=parse_group,
    ),
    Option(
        name="long_state",
        help="cut (marks the answers), window (overlapping windows, the strongest answers) or "
        "reject; protocol profile only",
        default="cut",
        parse=parse_long_state,
    ),
    Option(
        name="strict",
        help="reference profile: official fields only",
        default=False,
        parse=parse_switch,
    ),
    Option(name="max_len", help="tokens of a row (the checkpoint's own)", parse=parse_budget),
    Option(
        name="head_max_len",
        help="tokens of question and options (the checkpoint's own)",
        parse=parse_budget,
    ),
    Option(name="threads", help="CPU threads (the physical cores)", parse=parse_threads),
)
ROUTING_OPTIONS = (
    *(Option(name=name, help=f"folder of the {name} checkpoint") for name in NAMES),
    Option(
        name="checkpoints",
        help="comma list of what to serve (all three)",
        parse=parse_checkpoints,
    ),
    Option(
        name="default_model",
        help="checkpoint for texts whose language is undecided",
        default="multilingual",
        parse=parse_checkpoint,
    ),
    Option(
        name="auto_task",
        help="question ids of a typed-decisions workflow choose that checkpoint",
        default=False,
        parse=parse_switch,
    ),
)
