"""From a text to token ids, in windows where it is longer than the network's positions."""

from dataclasses import dataclass

from tokenizers import Tokenizer

OVERLAP = 64  # tokens two neighbouring windows share, so that no sentence is only seen cut
CLS, SEP = "[CLS]", "[SEP]"


@dataclass(frozen=True, slots=True)
class WindowedTokenizer:
    """The checkpoint's tokenizer and the positions its network has."""

    tokenizer: Tokenizer
    max_positions: int

    def ids(self, text: str) -> list[int]:
        """Token ids without the markers of begin and end."""
        return self.tokenizer.encode(text, add_special_tokens=False).ids

    def windows(self, ids: list[int]) -> list[list[int]]:
        """Windows over `ids`, markers included; one window if all fit, also for an empty text."""
        size = self.max_positions - 2
        last = max(0, len(ids) - OVERLAP - 1)
        starts = range(0, last + 1, size - OVERLAP) if len(ids) > size else (0,)
        begin, end = self.tokenizer.token_to_id(CLS), self.tokenizer.token_to_id(SEP)
        assert begin is not None
        assert end is not None
        return [[begin, *ids[start : start + size], end] for start in starts]
