"""A GGUF writer that also writes what no honest writer would: every field can be set by hand."""

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

U8, I8, U16, I16, U32, I32, F32, BOOL, STRING, ARRAY, U64, I64, F64 = range(13)
_PACK = {U8: "<B", I8: "<b", U16: "<H", I16: "<h", U32: "<I", I32: "<i", F32: "<f", BOOL: "<B", U64: "<Q", I64: "<q"}
TYPE_F32, TYPE_F16, TYPE_Q4_0, TYPE_Q8_0, TYPE_Q4_K, TYPE_BF16 = 0, 1, 2, 8, 12, 30


def u32(value: int) -> bytes:
    return struct.pack("<I", value)


def u64(value: int) -> bytes:
    return struct.pack("<Q", value)


def string(text: str | bytes) -> bytes:
    raw = text.encode() if isinstance(text, str) else text
    return u64(len(raw)) + raw


def value(kind: int, content: object) -> bytes:
    """Encode one metadata value, without its type."""
    if kind == STRING:
        assert isinstance(content, str | bytes)
        return string(content)
    return struct.pack(_PACK[kind], content)


def pair(key: str | bytes, kind: int, content: object) -> bytes:
    return string(key) + u32(kind) + value(kind, content)


def array_pair(key: str, kind: int, contents: Sequence[object]) -> bytes:
    return string(key) + u32(ARRAY) + u32(kind) + u64(len(contents)) + b"".join(value(kind, c) for c in contents)


def entry(name: str | bytes, dims: Sequence[int], *, kind: int = TYPE_F32, offset: int = 0, n_dims: int = -1) -> bytes:
    """Encode one tensor directory entry; dims fastest first, n_dims as given or as many as there are."""
    count = len(dims) if n_dims < 0 else n_dims
    return string(name) + u32(count) + b"".join(u64(dim) for dim in dims) + u32(kind) + u64(offset)


def header(
    pairs: Sequence[bytes] = (),
    entries: Sequence[bytes] = (),
    *,
    magic: bytes = b"GGUF",
    version: bytes = b"\x03\0\0\0",
    num_tensors: int | None = None,
    num_pairs: int | None = None,
) -> bytes:
    counts = u64(len(entries) if num_tensors is None else num_tensors) + u64(
        len(pairs) if num_pairs is None else num_pairs
    )
    return magic + version + counts + b"".join(pairs) + b"".join(entries)


@dataclass(frozen=True)
class Tensor:
    """A tensor to write: shape slowest first, raw bytes, ggml type number."""

    shape: tuple[int, ...]
    raw: bytes
    kind: int = TYPE_F32


def floats(array: np.ndarray) -> Tensor:
    return Tensor(array.shape, np.ascontiguousarray(array, dtype="<f4").tobytes())


def complete_file(pairs: Sequence[bytes], tensors: Mapping[str, Tensor], *, alignment: int = 32) -> bytes:
    """Write header and tensor data, each tensor aligned."""
    entries, data = [], b""
    for name, tensor in tensors.items():
        entries.append(entry(name, tuple(reversed(tensor.shape)), kind=tensor.kind, offset=len(data)))
        data += tensor.raw + b"\0" * (-len(tensor.raw) % alignment)
    head = header(pairs, entries)
    return head + b"\0" * (-len(head) % alignment) + data


@dataclass(frozen=True)
class TinyLlama:
    """A one-layer model whose file can be varied: hidden 8, 2 heads of 4, 1 KV head, 12 tokens.

    Attributes:
        pairs: metadata by key, already encoded.
        tensors: by the names in the file, float32 noise with a fixed seed.
    """

    pairs: dict[str, bytes] = field(default_factory=dict)
    tensors: dict[str, Tensor] = field(default_factory=dict)

    def with_pair(self, key: str, kind: int, content: object) -> "TinyLlama":
        return TinyLlama({**self.pairs, key: pair(key, kind, content)}, self.tensors)

    def with_array(self, key: str, kind: int, contents: Sequence[object]) -> "TinyLlama":
        return TinyLlama({**self.pairs, key: array_pair(key, kind, contents)}, self.tensors)

    def without_pair(self, key: str) -> "TinyLlama":
        return TinyLlama({name: raw for name, raw in self.pairs.items() if name != key}, self.tensors)

    def with_tensor(self, name: str, tensor: Tensor) -> "TinyLlama":
        return TinyLlama(self.pairs, {**self.tensors, name: tensor})

    def without_tensor(self, name: str) -> "TinyLlama":
        return TinyLlama(self.pairs, {key: tensor for key, tensor in self.tensors.items() if key != name})

    def encode(self) -> bytes:
        return complete_file(list(self.pairs.values()), self.tensors)


TOKENS = ["<unk>", "<s>", "</s>", *"abcdefg", "ab", "abc"]


def tiny_llama(architecture: str = "llama") -> TinyLlama:
    """Return a complete model of the family, tied head, no biases (qwen2 has them, qwen3 has the q and k norms)."""
    numbers = {
        "block_count": 1,
        "context_length": 64,
        "embedding_length": 8,
        "feed_forward_length": 6,
        "attention.head_count": 2,
        "attention.head_count_kv": 1,
        "rope.dimension_count": 4,
    }
    model = TinyLlama().with_pair("general.architecture", STRING, architecture)
    for key, number in numbers.items():
        model = model.with_pair(f"{architecture}.{key}", U32, number)
    model = (
        model.with_pair(f"{architecture}.attention.layer_norm_rms_epsilon", F32, 1e-5)
        .with_pair("tokenizer.ggml.model", STRING, "gpt2")
        .with_pair("tokenizer.ggml.pre", STRING, "smollm")
        .with_array("tokenizer.ggml.tokens", STRING, TOKENS)
        .with_array("tokenizer.ggml.token_type", I32, [3, 3, 3, *[1] * 9])
        .with_array("tokenizer.ggml.merges", STRING, ["a b", "ab c"])
        .with_pair("tokenizer.ggml.bos_token_id", U32, 1)
        .with_pair("tokenizer.ggml.eos_token_id", U32, 2)
        .with_pair("tokenizer.ggml.add_bos_token", BOOL, 1)
        .with_pair("tokenizer.chat_template", STRING, "{{ messages }}")
    )
    shapes: dict[str, tuple[int, ...]] = {
        "token_embd.weight": (12, 8),
        "output_norm.weight": (8,),
        "blk.0.attn_norm.weight": (8,),
        "blk.0.ffn_norm.weight": (8,),
        "blk.0.attn_q.weight": (8, 8),
        "blk.0.attn_k.weight": (4, 8),
        "blk.0.attn_v.weight": (4, 8),
        "blk.0.attn_output.weight": (8, 8),
        "blk.0.ffn_gate.weight": (6, 8),
        "blk.0.ffn_up.weight": (6, 8),
        "blk.0.ffn_down.weight": (8, 6),
    }
    if architecture == "qwen2":
        shapes |= {"blk.0.attn_q.bias": (8,), "blk.0.attn_k.bias": (4,), "blk.0.attn_v.bias": (4,)}
    if architecture == "qwen3":
        shapes |= {"blk.0.attn_q_norm.weight": (4,), "blk.0.attn_k_norm.weight": (4,)}
    generator = np.random.default_rng(7)
    for name, shape in shapes.items():
        model = model.with_tensor(name, floats(generator.standard_normal(shape)))
    return model
