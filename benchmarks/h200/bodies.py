"""Request bodies of exact lengths: states of words that are one token each, and screenshots."""

from __future__ import annotations

import base64
import io
import json
import random
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

# Each is one token behind a space, in the vocabulary of Qwen3.5.
_TEXT = """
the of and to in is that for it as was with be by on not he his but at are this have from or had an
they which one you were all her she there would their we him been has when who will no more if out
so up said what its about than into them can only other time new some could these two may first then
do any like my now over such our man me even most made after also well
"""
WORDS = tuple(_TEXT.split())
OPTIONS = {
    "open": "open the first message",
    "reply": "write a reply to the sender",
    "archive": "move the message to the archive",
    "wait": "wait until the page has loaded",
}


class Exact:
    """Bodies whose prompts have a given number of tokens by the family's own processor."""

    def __init__(
        self, processor: Any, question: dict[str, Any], wrap: Callable[[str], Any] = lambda x: x
    ) -> None:
        self._processor, self._questions, self._wrap = processor, {"q": question}, wrap
        self.least = self._count("the")

    def body(self, tokens: int, seed: int, question: dict[str, Any] | None = None) -> bytes:
        """A body whose (first) prompt has exactly so many tokens; other seeds, other states."""
        state = self.state(tokens, seed)
        questions = {"q": question} if question else self._questions
        return json.dumps({"state": state, "questions": questions}).encode()

    def state(self, tokens: int, seed: int) -> str:
        words = random.Random(seed).choices(WORDS, k=tokens)
        count = max(1, tokens - self.least + 1)
        for _ in range(10):
            text = " ".join(words[:count])
            found = self._count(text)
            if found == tokens:
                return text
            count += tokens - found
        raise ValueError(f"no state of words makes a prompt of {tokens} tokens")

    def token_ids(self, body: bytes) -> list[int]:
        """The token ids of the (first) prompt of a body."""
        return list(self._prepare(json.loads(body)).prompts[0].token_ids)

    def _count(self, state: str) -> int:
        fields = {"state": state, "questions": self._questions}
        return int(self._prepare(fields).prompts[0].num_tokens)

    def _prepare(self, fields: dict[str, Any]) -> Any:
        return self._processor.prepare(parse(fields))


def parse(fields: dict[str, Any]) -> Any:
    """The request that the server makes of a body."""
    from system1_core.wire.dialect import Body, RequestLimits
    from system1_core.wire.systemone import SystemOne

    return SystemOne().parse(Body(json=fields, num_bytes=0), RequestLimits())


def load_processor(name: str, folder: Path) -> Any:
    """The processor of a family with random weights."""
    from benchmarks_random_weights.plugin import system1_register_models

    from system1_core.family import Load
    from system1_torch.plugin import TorchBackend

    (family,) = (f for f in system1_register_models() if f.name == name)
    backend = TorchBackend(device="cpu", dtypes=("float32",), default_dtype="float32")
    options = {option.name: option.default for option in family.options}
    return family.load_processor(Load(family=name, folder=folder, backend=backend, options=options))


def screenshot(width: int, height: int, seed: int, kind: str = "jpeg") -> bytes:
    """A drawn desktop: windows, lines of text, icons and a photo-like patch; no two are alike."""
    from PIL import Image, ImageDraw

    rng = random.Random(seed)

    def colour(low: int, high: int) -> tuple[int, int, int]:
        return rng.randint(low, high), rng.randint(low, high), rng.randint(low, high)

    picture = Image.new("RGB", (width, height), colour(180, 250))
    draw = ImageDraw.Draw(picture)
    for _ in range(8):
        left, top = rng.randrange(width // 2), rng.randrange(height // 2)
        right, bottom = left + rng.randint(200, width // 2), top + rng.randint(150, height // 2)
        draw.rectangle((left, top, right, bottom), colour(220, 255), colour(60, 120))
        draw.rectangle((left, top, right, top + 24), colour(40, 160))
        for line in range(top + 30, bottom - 12, 14):
            text = " ".join(rng.choices(WORDS, k=(right - left) // 40))
            draw.text((left + 8, line), text, fill=colour(0, 90))
    for _ in range(40):
        x, y = rng.randrange(width), rng.randrange(height)
        draw.ellipse((x, y, x + 24, y + 24), colour(0, 255))
    noise = Image.effect_noise((width // 4, height // 4), 60).convert("RGB")
    picture.paste(noise, (rng.randrange(width // 2), rng.randrange(height // 2)))
    file = io.BytesIO()
    picture.save(file, kind.upper(), **({"quality": 85} if kind == "jpeg" else {}))
    return file.getvalue()


def screenshots(width: int, height: int, seeds: Sequence[int], kind: str = "jpeg") -> list[bytes]:
    """One for each seed, drawn on all cores: a large one takes a third of a second."""
    draw = partial(screenshot, width, height, kind=kind)
    # A new process: this one has threads, which a fork would lose.
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
        return list(pool.map(draw, seeds, chunksize=4))


def data_url(picture: bytes, kind: str = "jpeg") -> str:
    return f"data:image/{kind};base64,{base64.b64encode(picture).decode()}"
