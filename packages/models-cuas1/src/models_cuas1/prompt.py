"""The prompt of Cua-S1: what the model reads of a request, to the character.

The strings of the prompt come from Cua under the MIT License; NOTICE keeps its text.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from system1_core.request import Question, json_text

TEXT, MULTIMODAL = "text", "multimodal"
MODALITIES = (TEXT, MULTIMODAL)
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
# Spelled in text beside a picture they would be taken for one.
MEDIA_TOKENS = ("<|image_pad|>", "<|video_pad|>", "<|vision_start|>", "<|vision_end|>")
SYSTEM = (
    "You are a one-pass computer-use decision model. You are shown the current state of a screen "
    "and a fixed, closed list of candidate (element, action) options, each given a single letter. "
    "Choose exactly one option: the single best next action to take. Answer with ONLY that "
    "option's letter -- no words, no punctuation, no explanation."
)
IMAGE = "<|vision_start|><|image_pad|><|vision_end|>"
_APP = "App: Cua Driver\nTask family: closed-candidate decision\n\n"
_TURN = f"<|im_start|>system\n{SYSTEM}<|im_end|>\n<|im_start|>user\n"
# The thought stays open: the answer is its first token.
_ANSWER = "<|im_end|>\n<|im_start|>assistant\n<think>\n"


def goal_of(question: Question) -> str:
    """What the question asks for; "" leaves the goal's lines out."""
    return "" if question.instructions is None else json_text(question.instructions)


def labels_of(question: Question) -> list[str]:
    """The options as they are shown: the description, or the key where that is null, escaped as
    inside a JSON string."""
    labels = (
        name if entry is None else json_text(entry) for name, entry in question.criteria.items()
    )
    return [json.dumps(label, ensure_ascii=False)[1:-1] for label in labels]


def text_parts(goal: str, state: str, labels: Sequence[str]) -> tuple[str, str, str]:
    """A text prompt in three parts whose tokens, one after the other, are those of the whole.

    The middle part depends on the state alone. No rule that splits words joins a letter to a colon
    behind it, or a line's end to a letter behind it, whatever the state holds.
    """
    head = f"{_TURN}{_goal_lines(goal)}{_APP}Accessibility tree"
    return head, f":\n{state}\n\n", _options(labels) + _ANSWER


def image_text(goal: str, labels: Sequence[str]) -> str:
    """A multimodal prompt, with one placeholder for the picture."""
    return f"{_TURN}{image_turn(goal, labels)}{_ANSWER}"


def text_turn(goal: str, state: str, labels: Sequence[str]) -> str:
    """The user's message of a text prompt."""
    return f"{_goal_lines(goal)}{_APP}Accessibility tree:\n{state}\n\n{_options(labels)}"


def image_turn(goal: str, labels: Sequence[str]) -> str:
    """The user's message of a multimodal prompt."""
    attached = "The current screenshot is attached.\n\n"
    return f"{IMAGE}{_goal_lines(goal)}{_APP}{attached}{_options(labels)}"


def _goal_lines(goal: str) -> str:
    return f"Goal: {goal}\n\n" if goal else ""


def _options(labels: Sequence[str]) -> str:
    lines = [
        f'{letter}. Decision "{label}" -> select'
        for letter, label in zip(LETTERS, labels, strict=False)
    ]
    return "\n".join(["Options:", *lines, "", "Answer with a single letter."])
