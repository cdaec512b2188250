"""Counter-based randomness: the uniform number for a draw is a pure function of (seed, index, position).

There is no generator state, so a draw doesn't depend on batch mates, on its row, on the device, or on how often its
sequence was preempted and recomputed. The function is Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy
as 1, 2, 3", SC 2011): key = the seed's two 32-bit halves, counter = (position low, position high, index low, index
high). The first two output words give 53 bits.
"""

from collections.abc import Sequence as Many

import numpy as np
from numpy.typing import NDArray

_MULTIPLIERS = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
_WEYL = (np.uint64(0x9E3779B9), np.uint64(0xBB67AE85))
_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)
_ROUNDS = 10

Words = NDArray[np.uint64]


def philox4x32(counter: tuple[Words, Words, Words, Words], key: tuple[Words, Words]) -> tuple[Words, ...]:
    """Apply the ten rounds to counters and keys of 32-bit words held in uint64 arrays; returns four word arrays."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(_ROUNDS):
        left, right = c0 * _MULTIPLIERS[0], c2 * _MULTIPLIERS[1]
        c0, c1, c2, c3 = (right >> _HALF) ^ c1 ^ k0, right & _LOW, (left >> _HALF) ^ c3 ^ k1, left & _LOW
        k0, k1 = (k0 + _WEYL[0]) & _LOW, (k1 + _WEYL[1]) & _LOW
    return c0, c1, c2, c3


def uniforms(seeds: Many[int], indices: Many[int], positions: Many[int]) -> NDArray[np.float64]:
    """Return float64 [num_draws] in [0, 1), multiples of 2^-53, one for each (seed, index, position).

    All three are integers in 0..2^63-1.
    """
    seed, index, position = (np.array(values, dtype=np.uint64) for values in (seeds, indices, positions))
    high, low, _, _ = philox4x32(
        (position & _LOW, position >> _HALF, index & _LOW, index >> _HALF), (seed & _LOW, seed >> _HALF)
    )
    bits = (high << np.uint64(21)) | (low >> np.uint64(11))
    return bits.astype(np.float64) * 2.0**-53
