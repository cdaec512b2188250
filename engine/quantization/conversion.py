"""Float matrices made narrower: 8 bits with a scale for every 32 inputs, or bfloat16."""

import numpy as np
from gguf.constants import GGMLQuantizationType
from gguf.quants import quantize
from numpy.typing import NDArray


def quantize_to_q8_0(values: NDArray[np.float32]) -> NDArray[np.uint8]:
    """Return rows [num_rows, row_length], row_length a multiple of 32, as Q8_0 blocks, uint8 [num_rows, bytes_per_row].

    A scale is the block's largest magnitude over 127, rounded to float16; integers are the nearest.
    """
    return _converted(values, GGMLQuantizationType.Q8_0)


def round_to_bfloat16(values: NDArray[np.float32]) -> NDArray[np.uint8]:
    """Return rows [num_rows, row_length] as BF16, uint8 [num_rows, 2 * row_length]: to nearest, ties to even."""
    return _converted(values, GGMLQuantizationType.BF16)


def _converted(values: NDArray[np.float32], kind: GGMLQuantizationType) -> NDArray[np.uint8]:
    converted: NDArray[np.uint8] = quantize(values, kind)
    return np.ascontiguousarray(converted)
