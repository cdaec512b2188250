"""Float matrices in 8 bits with a scale for every 32 inputs."""

import numpy as np
from gguf.constants import GGMLQuantizationType
from gguf.quants import quantize
from numpy.typing import NDArray


def quantize_to_q8_0(values: NDArray[np.float32]) -> NDArray[np.uint8]:
    """Return rows [num_rows, row_length], row_length a multiple of 32, as Q8_0 blocks, uint8 [num_rows, bytes_per_row].

    A scale is the block's largest magnitude over 127, rounded to float16; integers are the nearest.
    """
    blocks: NDArray[np.uint8] = quantize(values, GGMLQuantizationType.Q8_0)
    return np.ascontiguousarray(blocks)
