"""FileTensor: one weight as it lies in a memory-mapped file."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from engine.quantization.gguf_blocks import dequantize_rows


@dataclass(frozen=True, slots=True)
class FileTensor:
    """A WeightTensor over bytes that stay where they are until somebody asks for them.

    Attributes:
        name: canonical name (DecoderSpec).
        shape: of the dequantised tensor, [out_features, in_features] or [size].
        encoding: ggml's name of the type.
        stored: uint8 [out_features, bytes_per_row] (or [1, bytes] for vectors), a view into the file.
        row_order: canonical row r is stored row row_order[r] (for a vector: element); None when the file's order is
            the canonical one.
    """

    name: str
    shape: tuple[int, ...]
    encoding: str
    stored: NDArray[np.uint8]
    row_order: NDArray[np.intp] | None = None

    @property
    def data(self) -> NDArray[np.uint8]:
        """Raw rows in canonical order: the file's own pages, or a fresh reordered copy when there is a row_order."""
        if self.row_order is None:
            return self.stored
        if len(self.shape) == 1:
            return self.stored.reshape(self.shape[0], -1)[self.row_order].reshape(1, -1)
        return self.stored[self.row_order]

    @property
    def num_bytes(self) -> int:
        return self.stored.nbytes

    def to_float32(self) -> NDArray[np.float32]:
        """Return a dequantised copy of `shape`."""
        return dequantize_rows(self.data, self.encoding).reshape(self.shape)
