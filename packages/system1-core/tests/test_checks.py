"""The kit finds what plugin authors get wrong."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from fakes import FirstOption, Zeros, family, plugins

from system1_core import NoulAnswer, Prompt
from system1_core.errors import InferenceFailed
from system1_core.testing import check_family, checks


@pytest.fixture
def install(monkeypatch):
    return lambda one: monkeypatch.setattr(checks, "discover", lambda: plugins(one))


class ByLength(Zeros):
    """The option that the length of the prompt chooses."""

    def execute(self, prompts: Sequence[Prompt]) -> list[int]:
        return [prompt.num_tokens % 2 for prompt in prompts]


class FirstOfAll(ByLength):
    """Every prompt gets the answer of the batch's first."""

    def execute(self, prompts: Sequence[Prompt]) -> list[int]:
        return [ByLength.execute(self, prompts)[0] for _ in prompts]


class OnlyNouls(FirstOption):
    def finish(self, context: Any, outputs: Sequence[Any]) -> Any:
        return [NoulAnswer(probability=0.5) for _ in outputs]


def test_a_sound_family_passes(install):
    install(family(executor=ByLength()))
    check_family("zeros")


def test_a_neighbour_that_changes_an_answer_is_found(install):
    install(family(executor=FirstOfAll()))
    with pytest.raises(AssertionError, match="in its batch changed it"):
        check_family("zeros")


def test_a_type_that_is_declared_but_not_answered_is_found(install):
    install(family(load_processor=lambda load: OnlyNouls()))
    with pytest.raises(InferenceFailed):
        check_family("zeros")
