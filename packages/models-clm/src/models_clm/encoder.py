"""A Qwen3 checkpoint folder as an encoder in the process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from torch.nn import functional

from models_clm.prompts import Vector
from models_clm.qwen3 import Qwen3, Qwen3Ops
from models_clm.qwen3_config import Qwen3Config
from models_clm.segments import pack
from system1_core.errors import CheckpointError
from system1_torch.loading import check_shapes, load_into, make_empty
from system1_torch.safetensors_file import Safetensors

TOKENIZER_FILE = "tokenizer.json"
# Causal language models carry their vocabulary head and a prefix; plain encoders have neither.
_PREFIX = "model."
_HEAD = "lm_head.weight"


class Encoder:
    """Last-token embeddings of token sequences; used by one thread at a time."""

    def __init__(self, network: Qwen3) -> None:
        self._network: Qwen3 | None = network
        self.device = network.norm.device
        self.hidden_size = network.config.hidden_size

    @classmethod
    def load(
        cls,
        folder: Path,
        *,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
        ops: Mapping[str, Any] | None = None,
    ) -> Encoder:
        """Straight from the safetensors of a folder; raises CheckpointError."""
        config = Qwen3Config.load(folder)
        source = Safetensors.open(folder)
        chosen = Qwen3Ops.of(ops or {})
        # The file is held against the sizes before any memory is taken for them.
        with torch.device("meta"):
            expected = dict(Qwen3(config, chosen).places())
        check_shapes(
            {name: source[key] for key in source if (name := _place(key)) is not None},
            expected,
            source.source,
        )
        network = make_empty(lambda: Qwen3(config, chosen), device=device, dtype=dtype)
        load_into(dict(network.places()), source, rename=_place, check_finite=True)
        return cls(network)

    @torch.inference_mode()
    def embed(self, sequences: Sequence[Sequence[int]]) -> list[Vector]:
        """Unit embeddings, float32 [D], in the order of `sequences`, none of them empty."""
        assert self._network is not None, "the encoder is closed"
        rows = self._network(pack(sequences, self.device))
        units = functional.normalize(rows.float(), dim=-1).cpu().numpy()
        # Copies: a view would keep the whole batch in memory as long as one text is cached.
        return [row.copy() for row in units]

    def close(self) -> None:
        """Free the weights."""
        self._network = None


def load_tokenizer(folder: Path, vocab_size: int) -> Tokenizer:
    """The checkpoint's own tokenizer, never padding or cutting; raises CheckpointError."""
    file = folder / TOKENIZER_FILE
    if not file.is_file():
        raise CheckpointError(f"{file}: missing; fetch it with the checkpoint")
    try:
        tokenizer = Tokenizer.from_file(str(file))
    except Exception as error:  # the library raises plain Exception
        raise CheckpointError(f"{file}: {error}; fetch it again") from None
    found = tokenizer.get_vocab_size(with_added_tokens=True)
    if found > vocab_size:
        raise CheckpointError(
            f"{file}: {found} tokens, expected at most the checkpoint's {vocab_size}; the "
            "tokenizer is another model's"
        )
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def _place(name: str) -> str | None:
    """Where a tensor of the file belongs; None for the vocabulary head."""
    return None if name == _HEAD else name.removeprefix(_PREFIX)
