"""GGUF files: (spec, weights, tokenizer source) out of one memory-mapped file."""

from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from engine.errors import ModelLoadError
from engine.model.file_tensor import FileTensor
from engine.model.gguf_header import GgufHeader, GgufTensor, read_gguf_header
from engine.model.gguf_metadata import Metadata
from engine.model.gguf_spec import FAMILIES, read_spec
from engine.model.gguf_tokenizer import read_tokenizer
from engine.model.mapped_file import map_file
from engine.model.spec import DecoderSpec
from engine.model.tokenizer_source import GgufTokenizerSource
from engine.model.weights import Weights

_ROPE_FACTORS: Final = "rope_freqs.weight"
_TOP_LEVEL: Final = {
    "embed.weight": "token_embd.weight",
    "final_norm.weight": "output_norm.weight",
    "head.weight": "output.weight",
}
_IN_LAYER: Final = {
    "attn_norm": "attn_norm",
    "mlp_norm": "ffn_norm",
    "q": "attn_q",
    "k": "attn_k",
    "v": "attn_v",
    "o": "attn_output",
    "q_norm": "attn_q_norm",
    "k_norm": "attn_k_norm",
    "gate": "ffn_gate",
    "up": "ffn_up",
    "down": "ffn_down",
}


def load_gguf(path: Path) -> tuple[DecoderSpec, Weights, GgufTokenizerSource]:
    """Open a GGUF file of a known family. The tensors stay in the file, mapped read-only.

    Raises:
        ModelLoadError: the file can't be read, is damaged, of an unknown family, or has tensors missing, in the wrong
            shape or left over; begins with the path and names the field.
    """
    try:
        file = map_file(path)
        header = read_gguf_header(file)
        metadata = Metadata(header.metadata)
        if (num_parts := metadata.get_int("split.count")) not in (None, 0, 1):
            raise ModelLoadError(f"`split.count` says this is one of {num_parts} files; they must be merged into one")
        spec = read_spec(header, _rope_factors(header, file))
        tokenizer = read_tokenizer(metadata)
        if len(tokenizer.tokens) != spec.vocab_size:
            raise ModelLoadError(
                f"`tokenizer.ggml.tokens` has {len(tokenizer.tokens)} entries, but tensor `token_embd.weight` has "
                f"{spec.vocab_size} rows"
            )
        return spec, _weights(header, file, spec), tokenizer
    except ModelLoadError as error:
        raise ModelLoadError(f"{path}: {error.message}") from None


def _weights(header: GgufHeader, file: NDArray[np.uint8], spec: DecoderSpec) -> Weights:
    interleaved = FAMILIES[spec.architecture].interleaved_rope
    left = dict(header.tensors)
    left.pop(_ROPE_FACTORS, None)
    tensors: dict[str, FileTensor] = {}
    for name, shape in spec.weight_shapes().items():
        stored_name = _stored_name(name)
        entry = left.pop(stored_name, None)
        if entry is None:
            raise ModelLoadError(f"tensor `{stored_name}` is missing")
        if entry.shape != shape:
            raise ModelLoadError(f"tensor `{stored_name}` must have shape {list(shape)}, found {list(entry.shape)}")
        if len(shape) == 1 and entry.format.block_size > 1:
            raise ModelLoadError(f"tensor `{stored_name}` is a vector and can't have type {entry.format.encoding}")
        order = _half_split_order(name, shape[0], spec.head_dim) if interleaved else None
        tensors[name] = FileTensor(name, shape, entry.format.encoding, _rows(entry, file), order)
    if left:
        raise ModelLoadError(f"tensor `{next(iter(left))}` has no place in a {spec.architecture} model")
    return Weights(tensors)


def _stored_name(name: str) -> str:
    if name in _TOP_LEVEL:
        return _TOP_LEVEL[name]
    _, layer, part, kind = name.split(".")
    return f"blk.{layer}.{_IN_LAYER[part]}.{kind}"


def _rows(entry: GgufTensor, file: NDArray[np.uint8]) -> NDArray[np.uint8]:
    num_rows = entry.shape[0] if len(entry.shape) > 1 else 1
    return file[entry.start : entry.start + entry.num_bytes].reshape(num_rows, -1)


def _half_split_order(name: str, num_rows: int, head_dim: int) -> NDArray[np.intp] | None:
    """Return where a file with interleaved pairs keeps the rows of Q and K; None for every other weight.

    Stored row 2i + p of a head is canonical row p * head_dim/2 + i. Rows move whole, so quantised blocks stay intact.
    """
    if name.rsplit(".", 2)[-2] not in ("q", "k"):
        return None
    stored = np.arange(num_rows, dtype=np.intp).reshape(-1, head_dim // 2, 2)
    return stored.swapaxes(1, 2).reshape(-1)


def _rope_factors(header: GgufHeader, file: NDArray[np.uint8]) -> tuple[float, ...]:
    entry = header.tensors.get(_ROPE_FACTORS)
    if entry is None:
        return ()
    if len(entry.shape) != 1 or entry.format.block_size > 1:
        raise ModelLoadError(f"tensor `{_ROPE_FACTORS}` must be a vector of plain floats")
    tensor = FileTensor(_ROPE_FACTORS, entry.shape, entry.format.encoding, _rows(entry, file))
    return tuple(float(value) for value in tensor.to_float32())
