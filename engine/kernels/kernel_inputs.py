"""What a laboratory kernel is given, and the seeded inputs of a shape. Shapes: the fixed dim names, row-major."""

from dataclasses import dataclass

import gguf
import numpy as np
from numpy.typing import NDArray

from engine.quantization.gguf_blocks import dequantize_rows

Floats = NDArray[np.float32]
Steps = tuple[int, int]  # of a block's largest magnitude, in two roundings of which the better is taken

ROPE_THETA = 10_000.0


@dataclass(frozen=True, slots=True)
class RmsNormInputs:
    """x [num_rows, width], weight [width]."""

    x: Floats
    weight: Floats
    epsilon: float


@dataclass(frozen=True, slots=True)
class SoftmaxInputs:
    """x [num_rows, width]."""

    x: Floats


@dataclass(frozen=True, slots=True)
class SwigluInputs:
    """gate and up [num_rows, width]."""

    gate: Floats
    up: Floats


@dataclass(frozen=True, slots=True)
class RopeInputs:
    """x [num_tokens, num_heads, head_dim], cosines and sines [num_tokens, head_dim / 2]."""

    x: Floats
    cosines: Floats
    sines: Floats


@dataclass(frozen=True, slots=True)
class MatmulInputs:
    """x [num_rows, num_inputs]; weights uint8 [num_outputs, bytes of a row] in `encoding` (Q8_0 or Q4_1)."""

    x: Floats
    weights: NDArray[np.uint8]
    encoding: str

    def dequantized(self) -> Floats:
        """Return the weights as float32 [num_outputs, num_inputs]."""
        return dequantize_rows(self.weights, self.encoding)


@dataclass(frozen=True, slots=True)
class AttentionInputs:
    """One sequence of a paged cache.

    Attributes:
        query: [num_queries, num_heads, head_dim], at neighbouring positions.
        keys, values: [num_tokens, num_kv_heads, head_dim], numbers that float16 holds exactly, as the cache does.
        block_table: int32 [blocks of the sequence], in no order.
        block_size: tokens of a block.
        first_num_keys: keys that the first query sees; each later one sees one more.
    """

    query: Floats
    keys: Floats
    values: Floats
    block_table: NDArray[np.int32]
    block_size: int
    first_num_keys: int

    def paged(self) -> tuple[Floats, Floats]:
        """Return keys [num_blocks, num_kv_heads, head_dim, block_size] and values [..., block_size, head_dim].

        Slots that hold no token are NaN, so that whoever reads one is found out.
        """
        num_tokens, num_kv_heads, head_dim = self.keys.shape
        num_blocks = int(self.block_table.max()) + 1
        keys = np.full((num_blocks, num_kv_heads, head_dim, self.block_size), np.nan, dtype=np.float32)
        values = np.full((num_blocks, num_kv_heads, self.block_size, head_dim), np.nan, dtype=np.float32)
        tokens = np.arange(num_tokens)
        blocks, slots = self.block_table[tokens // self.block_size], tokens % self.block_size
        keys[blocks, :, :, slots] = self.keys
        values[blocks, :, slots] = self.values
        return keys, values


Inputs = RmsNormInputs | SoftmaxInputs | SwigluInputs | RopeInputs | MatmulInputs | AttentionInputs


def rms_norm_inputs(num_rows: int, width: int, *, seed: int = 0) -> RmsNormInputs:
    random = np.random.default_rng(seed)
    return RmsNormInputs(_noise(random, num_rows, width), _noise(random, width), epsilon=1e-5)


def softmax_inputs(num_rows: int, width: int, *, seed: int = 0) -> SoftmaxInputs:
    """Make scores of a spread that a careless softmax overflows on."""
    return SoftmaxInputs(30 * _noise(np.random.default_rng(seed), num_rows, width))


def swiglu_inputs(num_rows: int, width: int, *, seed: int = 0) -> SwigluInputs:
    random = np.random.default_rng(seed)
    return SwigluInputs(10 * _noise(random, num_rows, width), _noise(random, num_rows, width))


def rope_inputs(num_tokens: int, num_heads: int, head_dim: int, *, seed: int = 0) -> RopeInputs:
    """Make heads at the positions 1000, 1001 ..."""
    half = head_dim // 2
    frequencies = ROPE_THETA ** (-np.arange(half) / half)
    angles = (1000 + np.arange(num_tokens))[:, None] * frequencies
    x = _noise(np.random.default_rng(seed), num_tokens, num_heads, head_dim)
    return RopeInputs(x, np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32))


def matmul_inputs(num_rows: int, num_outputs: int, num_inputs: int, *, encoding: str, seed: int = 0) -> MatmulInputs:
    """Make activations and weights; num_inputs is a multiple of 32."""
    random = np.random.default_rng(seed)
    x, weights = _noise(random, num_rows, num_inputs), 0.05 * _noise(random, num_outputs, num_inputs)
    rows = gguf.quants.quantize(weights, gguf.GGMLQuantizationType[encoding])
    return MatmulInputs(x, np.ascontiguousarray(rows).view(np.uint8), encoding)


def attention_inputs(
    num_queries: int, num_keys: int, *, num_heads: int, num_kv_heads: int, head_dim: int, block_size: int, seed: int = 0
) -> AttentionInputs:
    """Make the last num_queries positions of a sequence of num_keys tokens, its blocks scattered over the cache."""
    random = np.random.default_rng(seed)
    used = -(-num_keys // block_size)
    table = random.permutation(used + 3)[:used].astype(np.int32)
    keys, values = (
        _noise(random, num_keys, num_kv_heads, head_dim).astype(np.float16).astype(np.float32) for _ in range(2)
    )
    query = 2 * _noise(random, num_queries, num_heads, head_dim)
    return AttentionInputs(query, keys, values, table, block_size, first_num_keys=num_keys - num_queries + 1)


def _noise(random: np.random.Generator, *shape: int) -> Floats:
    return random.standard_normal(shape).astype(np.float32)
