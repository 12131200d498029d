"""Both parts of the family from a folder and its options."""

from __future__ import annotations

from pathlib import Path

from models_clm.cache import EmbeddingCache
from models_clm.checkpoint import CHECKPOINTS, RAW, HeadFiles, find_heads, head_name
from models_clm.embedding_server import EmbeddingServer
from models_clm.encoder import Encoder, load_tokenizer
from models_clm.executor import MAX_CONNECTIONS, ClmExecutor, EncoderExecutor, ServerExecutor
from models_clm.heads import Heads
from models_clm.options import ClmOptions
from models_clm.processor import ClmProcessor
from models_clm.qwen3_config import Qwen3Config
from models_clm.scorer import KEPT_PROJECTIONS, Scorer
from models_clm.source import ServerTexts, TextSource, TokenisedTexts
from system1_core.family import Load
from system1_torch.device import torch_device
from system1_torch.dtype import torch_dtype


def load_processor(load: Load) -> ClmProcessor:
    """Reads no weights."""
    options = ClmOptions.of(load.options)
    return ClmProcessor(
        _heads(load, options), _source(options), EmbeddingCache(options.cache_texts)
    )


def load_executor(load: Load) -> ClmExecutor:
    """Raises CheckpointError or ConfigError."""
    options = ClmOptions.of(load.options)
    files = _heads(load, options).files
    device = torch_device(load.backend.device)
    if options.encoder is None:
        scorer = _scorer(Heads(files, device), load, options)
        return ServerExecutor(EmbeddingServer(options, max_connections=MAX_CONNECTIONS), scorer)
    # The small files first: a head of another width is known before the encoder is read.
    width = Qwen3Config.load(options.encoder).hidden_size
    heads = Heads(files, device, width)
    encoder = Encoder.load(
        options.encoder, device=device, dtype=torch_dtype(load.dtype), ops=load.backend.ops
    )
    scorer = _scorer(heads, load, options)
    return EncoderExecutor(encoder, scorer, is_deterministic=load.deterministic)


def _scorer(heads: Heads, load: Load, options: ClmOptions) -> Scorer:
    return Scorer(
        heads,
        load.backend.device,
        is_deterministic=load.deterministic,
        kept_projections=min(KEPT_PROJECTIONS, options.cache_texts),
    )


def _source(options: ClmOptions) -> TextSource:
    if options.encoder is None:
        return ServerTexts()
    config = Qwen3Config.load(options.encoder)
    tokenizer = load_tokenizer(options.encoder, config.vocab_size)
    return TokenisedTexts(tokenizer, options.truncate_tokens, config.max_position_embeddings)


def _heads(load: Load, options: ClmOptions) -> HeadFiles:
    """The user's folder, or the published head; none at all where only raw cosines are wanted."""
    folder: Path | None = load.folder
    if folder is None and options.default is not None and head_name(options.default) == RAW:
        return HeadFiles(files={}, default=RAW)
    return find_heads(folder or load.fetch(CHECKPOINTS[0].name), options.default)
