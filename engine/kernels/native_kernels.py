"""The native kernels one by one, on NumPy arrays: for tests against formulas and for measurements."""

import weakref
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from engine.errors import ConfigError
from engine.kernels.native_bindings import KernelFunctions, through_ctypes
from engine.kernels.native_library import KV_FORMATS, NativeLibrary

Floats = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class QuantizedRow:
    """A row in 8 bits, blocks of 32: x[i] is close to values[i] * scales[i // 32].

    Attributes:
        sums: scale times the sum of the block's values.
        starts: what half as many products start from; 0 where it isn't for them.
    """

    values: NDArray[np.int8]
    scales: Floats
    sums: Floats
    starts: NDArray[np.int32]


class PackedWeights:
    """A matrix packed once for the kernels of an instruction set, freed with this object.

    Args:
        weights: [num_outputs, bytes or floats of a row] in `encoding`.

    Raises:
        ConfigError: there is no native kernel for the encoding or the shape.
    """

    def __init__(
        self,
        functions: KernelFunctions,
        instruction_set: str,
        weights: NDArray[np.generic],
        num_inputs: int,
        *,
        encoding: str,
    ) -> None:
        handle = np.zeros(1, dtype=np.int64)
        _call(functions, "pack_matrix", instruction_set, encoding, _bytes(weights), len(weights), num_inputs, handle)
        self.num_outputs, self.num_inputs, self.handle = len(weights), num_inputs, int(handle[0])
        self.close = weakref.finalize(self, functions["free_matrix"], self.handle)


class PagedCache:
    """Keys and values of one sequence in the blocks of a pool, freed with this object.

    Args:
        keys, values: [num_tokens, num_kv_heads, head_dim].
        block_table: int32 [blocks of the sequence].
        kv_dtype: float32, bfloat16, float16 or int8.

    Raises:
        ConfigError: the shape isn't supported.
    """

    def __init__(
        self,
        functions: KernelFunctions,
        instruction_set: str,
        keys: Floats,
        values: Floats,
        block_table: NDArray[np.int32],
        *,
        kv_dtype: str,
        block_size: int,
    ) -> None:
        assert keys.shape == values.shape, (keys.shape, values.shape)
        num_tokens, self.num_kv_heads, self.head_dim = keys.shape
        assert len(block_table) * block_size >= num_tokens, (len(block_table), block_size, num_tokens)
        handle, table = np.zeros(1, dtype=np.int64), np.ascontiguousarray(block_table, dtype=np.int32)
        _call(
            functions, "pack_cache", instruction_set, KV_FORMATS[kv_dtype], _floats(keys), _floats(values), num_tokens,
            table, int(table.max()) + 1, self.head_dim, block_size, self.num_kv_heads, handle,
        )  # fmt: skip
        self.num_tokens, self.handle = num_tokens, int(handle[0])
        self.close = weakref.finalize(self, functions["free_cache"], self.handle)


class NativeKernels:
    """The kernels of one instruction set; arrays are made contiguous where they aren't.

    Args:
        functions: by which binding they are called; ctypes if not given.

    Raises:
        ConfigError: in every call, when the machine lacks the instruction set or a shape isn't supported.
    """

    def __init__(
        self, library: NativeLibrary, instruction_set: str, *, functions: KernelFunctions | None = None
    ) -> None:
        self._functions = through_ctypes(library) if functions is None else functions
        self._name = instruction_set

    @property
    def instruction_set(self) -> str:
        """The name that was asked for."""
        return self._name

    def matmul(self, x: Floats, weights: NDArray[np.generic], *, encoding: str) -> Floats:
        """Return x [num_rows, num_inputs] times the rows of weights [num_outputs, bytes or floats of a row]."""
        num_rows, num_inputs = x.shape
        y = np.full((num_rows, len(weights)), np.nan, dtype=np.float32)
        _call(
            self._functions, "matmul", self._name, encoding, _bytes(weights), len(weights), num_inputs, _floats(x),
            num_rows, y,
        )  # fmt: skip
        return y

    def pack(self, weights: NDArray[np.generic], num_inputs: int, *, encoding: str) -> PackedWeights:
        """Pack rows for `matmul_packed`."""
        return PackedWeights(self._functions, self._name, weights, num_inputs, encoding=encoding)

    def matmul_packed(self, x: Floats, weights: PackedWeights) -> Floats:
        """Return x [num_rows, num_inputs] times the packed rows."""
        assert weights.close.alive, "the matrix was freed"
        assert x.shape[1] == weights.num_inputs, (x.shape, weights.num_inputs)
        y = np.empty((len(x), weights.num_outputs), dtype=np.float32)
        _call(self._functions, "matmul_packed", self._name, weights.handle, _floats(x), len(x), y)
        return y

    def add_rests(self, y: Floats, x: Floats, weights: NDArray[np.generic], *, encoding: str) -> Floats:
        """Return y plus the products of what the rounding of x to 8 bits left over, in an eighth of each row's blocks.

        Args:
            y: [num_rows, num_outputs], `matmul` of the others.
        """
        num_rows, num_inputs = x.shape
        assert y.shape == (num_rows, len(weights)), (y.shape, x.shape, weights.shape)
        out = np.array(y, dtype=np.float32, order="C")
        _call(
            self._functions, "add_rests", self._name, encoding, _bytes(weights), len(weights), num_inputs, _floats(x),
            num_rows, out,
        )  # fmt: skip
        return out

    def unpack(self, weights: NDArray[np.generic], num_inputs: int, *, encoding: str) -> Floats:
        """Return the rows as float32 [num_outputs, num_inputs], after they were packed."""
        out = np.empty((len(weights), num_inputs), dtype=np.float32)
        _call(self._functions, "unpack", self._name, encoding, _bytes(weights), len(weights), num_inputs, out)
        return out

    def activation_steps(self, encoding: str, num_inputs: int) -> tuple[int, int] | None:
        """Return to how many steps activations for such weights are rounded, the better of two; None: they aren't."""
        steps = np.zeros(2, dtype=np.int32)
        _call(self._functions, "activation_steps", self._name, encoding, num_inputs, steps)
        return (int(steps[0]), int(steps[1])) if steps.all() else None

    def quantize_row(self, x: Floats, *, is_halved: bool = False) -> QuantizedRow:
        """Quantise [num_inputs], a multiple of 32; is_halved: for half as many products, see native/matmul_halved.h."""
        blocks = len(x) // 32
        row = QuantizedRow(
            np.empty(len(x), dtype=np.int8),
            np.empty(blocks, dtype=np.float32),
            np.empty(blocks, dtype=np.float32),
            np.empty(blocks, dtype=np.int32),
        )
        _call(
            self._functions, "quantize_row", self._name, _floats(x), len(x), int(is_halved), row.values, row.scales,
            row.sums, row.starts,
        )  # fmt: skip
        return row

    def rms_norm(self, x: Floats, weight: Floats, epsilon: float) -> Floats:
        """Return x / sqrt(mean(x^2) + epsilon) * weight over the last dimension of [..., width]."""
        assert weight.shape == x.shape[-1:], (weight.shape, x.shape)
        x, out = _floats(x), np.empty(x.shape, dtype=np.float32)
        num_rows, width = _rows(x)
        _call(self._functions, "rms_norm", self._name, x, _floats(weight), num_rows, width, epsilon, out)
        return out

    def softmax(self, x: Floats) -> Floats:
        """Return e^x / sum(e^x) over the last dimension of [..., width]."""
        x, out = _floats(x), np.empty(x.shape, dtype=np.float32)
        _call(self._functions, "softmax", self._name, x, *_rows(x), out)
        return out

    def swiglu(self, gate: Floats, up: Floats) -> Floats:
        """Return silu(gate) * up, elementwise."""
        assert gate.shape == up.shape, (gate.shape, up.shape)
        out = np.empty(gate.shape, dtype=np.float32)
        _call(self._functions, "swiglu", self._name, _floats(gate), _floats(up), gate.size, out)
        return out

    def rope(self, x: Floats, cosines: Floats, sines: Floats) -> Floats:
        """Return the heads [num_tokens, num_heads, head_dim] rotated by angles [num_tokens, head_dim / 2]."""
        num_tokens, num_heads, head_dim = x.shape
        assert cosines.shape == sines.shape == (num_tokens, head_dim // 2), (x.shape, cosines.shape, sines.shape)
        out = np.empty(x.shape, dtype=np.float32)
        _call(
            self._functions, "rope", self._name, _floats(x), _floats(cosines), _floats(sines), num_tokens, num_heads,
            head_dim, out,
        )  # fmt: skip
        return out

    def page(
        self, keys: Floats, values: Floats, block_table: NDArray[np.int32], *, kv_dtype: str, block_size: int
    ) -> PagedCache:
        """Store keys and values for `sequence_attention`."""
        return PagedCache(
            self._functions, self._name, keys, values, block_table, kv_dtype=kv_dtype, block_size=block_size
        )

    def attention(
        self,
        query: Floats,
        keys: Floats,
        values: Floats,
        block_table: NDArray[np.int32],
        *,
        kv_dtype: str,
        block_size: int,
        kv_head: int,
        first_num_keys: int,
    ) -> Floats:
        """Store keys and values in a paged cache, then attend over one KV head of it.

        Args:
            query: [num_queries, group, head_dim], at neighbouring positions.
            keys, values: [num_tokens, num_kv_heads, head_dim] of the sequence.
            block_table: int32 [blocks of the sequence].
            kv_dtype: float32, bfloat16, float16 or int8.
            first_num_keys: keys that the first query sees; each later one sees one more.

        Returns:
            float32 of query's shape.
        """
        cache = self.page(keys, values, block_table, kv_dtype=kv_dtype, block_size=block_size)
        out = np.full(query.shape, np.nan, dtype=np.float32)
        num_queries, group, _ = query.shape
        _call(
            self._functions, "attention", self._name, cache.handle, _floats(query), num_queries, group, kv_head,
            first_num_keys, out,
        )  # fmt: skip
        return out

    def sequence_attention(self, query: Floats, cache: PagedCache, *, first_num_keys: int) -> Floats:
        """Attend with all heads: `attention` for query [num_queries, num_heads, head_dim], heads grouped by KV head."""
        assert cache.close.alive, "the cache was freed"
        num_queries, num_heads, head_dim = query.shape
        assert head_dim == cache.head_dim, (query.shape, cache.head_dim)
        assert first_num_keys + num_queries - 1 <= cache.num_tokens, (query.shape, first_num_keys, cache.num_tokens)
        out = np.empty(query.shape, dtype=np.float32)
        _call(
            self._functions, "sequence_attention", self._name, cache.handle, _floats(query), num_queries, num_heads,
            first_num_keys, out,
        )  # fmt: skip
        return out


def _call(functions: KernelFunctions, name: str, *arguments: object) -> None:
    try:
        functions[name](*arguments)
    except ValueError as error:
        raise ConfigError(f"`{name}`: {error}") from None


def _floats(x: Floats) -> Floats:
    return np.ascontiguousarray(x, dtype=np.float32)


def _bytes(weights: NDArray[np.generic]) -> NDArray[np.uint8]:
    return np.ascontiguousarray(weights).view(np.uint8)


def _rows(x: Floats) -> tuple[int, int]:
    return x.size // x.shape[-1] if x.size else 0, x.shape[-1]
