"""The native kernels one by one, on NumPy arrays: for tests against formulas and for measurements."""

import ctypes
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from engine.errors import ConfigError
from engine.kernels.native_library import KV_FORMATS, NativeLibrary

Floats = NDArray[np.float32]
_Argument = bytes | int | ctypes.c_void_p | ctypes.c_float


@dataclass(frozen=True, slots=True)
class QuantizedRow:
    """A row in 8 bits, blocks of 32: x[i] is close to values[i] * scales[i // 32].

    Attributes:
        sums: scale times the sum of the block's values.
    """

    values: NDArray[np.int8]
    scales: Floats
    sums: Floats


class NativeKernels:
    """The kernels of one instruction set; arrays are made contiguous where they aren't.

    Raises:
        ConfigError: in every call, when the machine lacks the instruction set or a shape isn't supported.
    """

    def __init__(self, library: NativeLibrary, instruction_set: str) -> None:
        self._handle = library.handle
        self._name = instruction_set.encode()

    def matmul(self, x: Floats, weights: NDArray[np.generic], *, encoding: str) -> Floats:
        """Return x [num_rows, num_inputs] times the rows of weights [num_outputs, bytes or floats of a row]."""
        num_rows, num_inputs = x.shape
        y = np.full((num_rows, len(weights)), np.nan, dtype=np.float32)
        rows = np.ascontiguousarray(weights)
        self._call(
            "matmul", self._name, encoding.encode(), _at(rows), len(rows), num_inputs, _at(_floats(x)), num_rows, _at(y)
        )
        return y

    def unpack(self, weights: NDArray[np.generic], num_inputs: int, *, encoding: str) -> Floats:
        """Return the rows as float32 [num_outputs, num_inputs], after they were packed."""
        out = np.empty((len(weights), num_inputs), dtype=np.float32)
        rows = np.ascontiguousarray(weights)
        self._call("unpack", encoding.encode(), _at(rows), len(rows), num_inputs, _at(out))
        return out

    def quantize_row(self, x: Floats) -> QuantizedRow:
        """Quantise [num_inputs], a multiple of 32."""
        blocks = len(x) // 32
        row = QuantizedRow(
            np.empty(len(x), dtype=np.int8), np.empty(blocks, dtype=np.float32), np.empty(blocks, dtype=np.float32)
        )
        self._call("quantize_row", self._name, _at(_floats(x)), len(x), _at(row.values), _at(row.scales), _at(row.sums))
        return row

    def rms_norm(self, x: Floats, weight: Floats, epsilon: float) -> Floats:
        """Return x / sqrt(mean(x^2) + epsilon) * weight for [size]."""
        out = np.empty_like(x)
        self._call(
            "rms_norm", self._name, _at(_floats(x)), _at(_floats(weight)), len(x), ctypes.c_float(epsilon), _at(out)
        )
        return out

    def swiglu(self, gate: Floats, up: Floats) -> Floats:
        """Return silu(gate) * up for [size]."""
        out = np.empty_like(gate)
        self._call("swiglu", self._name, _at(_floats(gate)), _at(_floats(up)), len(gate), _at(out))
        return out

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
        out = np.full(query.shape, np.nan, dtype=np.float32)
        num_queries, group, head_dim = query.shape
        num_tokens, num_kv_heads, _ = keys.shape
        num_blocks = int(block_table.max()) + 1
        self._call(
            "attention", self._name, KV_FORMATS[kv_dtype], _at(_floats(query)), _at(_floats(keys)),
            _at(_floats(values)), num_tokens, _at(np.ascontiguousarray(block_table)), num_blocks, num_queries, group,
            head_dim, block_size, num_kv_heads, kv_head, first_num_keys, _at(out),
        )  # fmt: skip
        return out

    def _call(self, name: str, *arguments: _Argument) -> None:
        message = ctypes.create_string_buffer(300)
        if getattr(self._handle, f"pellucid_{name}")(*arguments, message, len(message)):
            raise ConfigError(f"`{name}`: {message.value.decode(errors='replace')}")


def _floats(x: Floats) -> Floats:
    return np.ascontiguousarray(x, dtype=np.float32)


def _at(array: NDArray[np.generic]) -> ctypes.c_void_p:
    """Return the address; the pointer keeps the array alive as long as it lives itself."""
    return array.ctypes.data_as(ctypes.c_void_p)
