"""GgufTokenizerSource out of GGUF metadata."""

from typing import Literal

import numpy as np

from engine.errors import ModelLoadError
from engine.model.gguf_metadata import Metadata
from engine.model.tokenizer_source import GgufTokenizerSource, TokenType

_IDS_END = (1 << 32) - 1


def read_tokenizer(metadata: Metadata) -> GgufTokenizerSource:
    """Collect the tokenizer's keys and check that they agree with each other.

    Raises:
        ModelLoadError: a key is missing, of the wrong type or length, or an id lies outside the vocabulary.
    """
    tokens = metadata.require_strings("tokenizer.ggml.tokens")
    pad_id = metadata.get_int("tokenizer.ggml.padding_token_id", low=-1, high=_IDS_END)
    if pad_id is not None and not 0 <= pad_id < len(tokens):
        pad_id = None  # converters write -1 or one past the end for "none", and nothing here pads with it
    return GgufTokenizerSource(
        model=_model(metadata),
        pre=metadata.get_string("tokenizer.ggml.pre"),
        tokens=tokens,
        scores=_scores(metadata, len(tokens)),
        token_types=_token_types(metadata, len(tokens)),
        merges=metadata.get_strings("tokenizer.ggml.merges") or (),
        bos_id=_token_id(metadata, "tokenizer.ggml.bos_token_id", len(tokens)),
        eos_id=_token_id(metadata, "tokenizer.ggml.eos_token_id", len(tokens)),
        eot_id=_token_id(metadata, "tokenizer.ggml.eot_token_id", len(tokens)),
        eom_id=_token_id(metadata, "tokenizer.ggml.eom_token_id", len(tokens)),
        unk_id=_token_id(metadata, "tokenizer.ggml.unknown_token_id", len(tokens)),
        pad_id=pad_id,
        add_bos=metadata.get_bool("tokenizer.ggml.add_bos_token"),
        add_eos=metadata.get_bool("tokenizer.ggml.add_eos_token") or False,
        add_space_prefix=metadata.get_bool("tokenizer.ggml.add_space_prefix"),
        chat_template=metadata.get_string("tokenizer.chat_template"),
    )


def _model(metadata: Metadata) -> Literal["gpt2", "llama"]:
    model = metadata.require_string("tokenizer.ggml.model")
    if model == "gpt2":
        return "gpt2"
    if model == "llama":
        return "llama"
    raise ModelLoadError(f"`tokenizer.ggml.model` is {model[:60]!r}, which can't be built; known are gpt2, llama")


def _scores(metadata: Metadata, num_tokens: int) -> tuple[float, ...] | None:
    values = metadata.get_numbers("tokenizer.ggml.scores")
    if values is None:
        return None
    _same_length("tokenizer.ggml.scores", len(values), num_tokens)
    scores = values.astype(np.float64)
    if np.isnan(scores).any():
        raise ModelLoadError("`tokenizer.ggml.scores` has NaN")
    return tuple(scores.tolist())


def _token_types(metadata: Metadata, num_tokens: int) -> tuple[int, ...]:
    values = metadata.get_numbers("tokenizer.ggml.token_type")
    if values is None:
        return (int(TokenType.NORMAL),) * num_tokens
    _same_length("tokenizer.ggml.token_type", len(values), num_tokens)
    return tuple(values.astype(np.int64).tolist())


def _same_length(key: str, found: int, num_tokens: int) -> None:
    if found != num_tokens:
        raise ModelLoadError(f"`{key}` has {found} entries, but `tokenizer.ggml.tokens` has {num_tokens}")


def _token_id(metadata: Metadata, key: str, num_tokens: int) -> int | None:
    token_id = metadata.get_int(key, low=-(1 << 31), high=_IDS_END)
    if token_id is not None and not 0 <= token_id < num_tokens:
        raise ModelLoadError(f"`{key}` must lie in [0, {num_tokens - 1}], found {token_id}")
    return token_id
