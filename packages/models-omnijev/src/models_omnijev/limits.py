"""How much one request may hold: the limits of OmniJev's public server, and two of our own."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Counts; sizes in characters, bytes, pixels or tokens as the names say.

    `body_bytes` holds in the reference profile only, where the server itself allows more.
    `pixels` counts all images of a request as they come: it and `frames` bound the decoding.
    """

    body_bytes: int = 12 * 2**20
    image_bytes: int = 8 * 2**20
    image_side: int = 4096
    pixels: int = 64 * 2**20
    frames: int = 64
    questions: int = 64
    id_chars: int = 256
    options: int = 255
    total_options: int = 1024
    text_chars: int = 8192
    sequence_tokens: int = 8192
    total_tokens: int = 65_536
    option_tokens: int = 16_384
    coordinate: float = 1e9


LIMITS = Limits()
