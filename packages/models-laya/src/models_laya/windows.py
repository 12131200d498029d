"""Which tokens of a long state a question sees."""

from __future__ import annotations

from dataclasses import dataclass

from system1_core.errors import TooLarge
from system1_core.request import Question

# A request of this many windows holds more text than any client limit of the protocol.
MAX_WINDOWS = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """Tokens `begin` to `end` of the state; `is_cut` where the rest is never seen."""

    begin: int
    end: int
    is_cut: bool = False


def cut(total: int, room: int, *, keeps_end: bool) -> Window:
    """The first `room` tokens; the last ones of a list, whose newest turn comes last."""
    begin = total - room if keeps_end else 0
    return Window(begin=begin, end=begin + room, is_cut=True)


def windows_of(total: int, size: int, question: Question) -> tuple[Window, ...]:
    """Windows of `size` tokens, each half a window after the one before, up to the end.

    Raises InvalidRequest where the question leaves the state no room, TooLarge above
    MAX_WINDOWS.
    """
    if size < 2:
        raise question.invalid(
            f"its options leave room for {size} tokens of the state; send fewer or shorter options"
        )
    stride = size // 2
    count = 1 + max(0, -(-(total - size) // stride))
    if count > MAX_WINDOWS:
        raise TooLarge(
            f"question {question.id!r}: a state of {total} tokens needs {count} windows of {size}, "
            f"limit {MAX_WINDOWS}; shorten the state"
        )
    return tuple(
        Window(begin=index * stride, end=min(total, index * stride + size))
        for index in range(count)
    )
