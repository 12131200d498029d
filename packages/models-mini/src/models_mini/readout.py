"""How the candidates of a question read the state."""

import re
from dataclasses import dataclass

LAYERS = 6  # of the encoder
NOBODY = -1

_NAME = re.compile(r"(?:(pooled|joint)|(prefix)([0-5]))(-single)?")


@dataclass(frozen=True, slots=True)
class Readout:
    """What a candidate's tokens see beside their own, and from which layer on.

    `pooled`: nothing, so its vector can be kept between requests. `prefixN`: the state, from layer
    N on; the state never sees a candidate, so candidates cannot influence each other. `joint`: the
    state and one candidate see each other in every layer. `-single` (noul): one text for the whole
    question, whose logit stands against zero, in place of one for each side.
    """

    sees: str
    layer: int
    is_single: bool

    @classmethod
    def parse(cls, name: str) -> "Readout":
        """From a config's name; raises ValueError."""
        match = _NAME.fullmatch(name)
        if match is None:
            raise ValueError(f"readout {name!r}: expected pooled, prefix0 to prefix5 or joint")
        whole, prefix, layer, single = match.groups()
        first = LAYERS if whole == "pooled" else int(layer or 0)
        return cls(whole or prefix, first, single is not None)

    @property
    def is_joint(self) -> bool:
        return self.sees == "joint"

    @property
    def is_pooled(self) -> bool:
        return self.sees == "pooled"

    @property
    def kind(self) -> int:
        """The token type of a candidate: a text for itself is of type 0, as in the base."""
        return 0 if self.is_pooled else 1

    def parent_of(self, segment: int) -> int:
        """The segment that a segment sees beside itself; 0 is the state."""
        if self.is_pooled or (segment == 0 and not self.is_joint):
            return NOBODY
        return 0 if segment else 1
