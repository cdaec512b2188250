"""Plain quantisers of the encodings with super-blocks, which the `gguf` package can only decode."""

import numpy as np

SUPER_BLOCK = 256


def quantize_k(values: np.ndarray, encoding: str) -> np.ndarray:
    """Return rows of floats, whose length is a multiple of 256, as uint8 [num_rows, bytes of a row].

    Scales are rounded to the encoding's bits, integers to the nearest: no search for the best scales.
    """
    rows = np.ascontiguousarray(values, dtype=np.float64)
    blocks = rows.reshape(-1, SUPER_BLOCK)
    packed = _q6_k(blocks) if encoding == "Q6_K" else _q4_k_or_q5_k(blocks, bits={"Q4_K": 4, "Q5_K": 5}[encoding])
    return packed.reshape(len(rows), -1)


def _halves(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return float16 scales as bytes [n, 2] and as what they hold, float64 [n, 1]."""
    halves = np.maximum(x, 1e-6).astype(np.float16)[:, None]
    return halves.view(np.uint8), halves.astype(np.float64)


def _q4_k_or_q5_k(blocks: np.ndarray, *, bits: int) -> np.ndarray:
    sub = blocks.reshape(len(blocks), 8, 32)
    minima = np.maximum(0, -sub.min(axis=2))
    scales = (sub.max(axis=2) + minima) / (2**bits - 1)
    d_bytes, d = _halves(scales.max(axis=1) / 63)
    dmin_bytes, dmin = _halves(minima.max(axis=1) / 63)
    small, small_min = (np.clip(np.rint(x / y), 0, 63).astype(np.uint8) for x, y in ((scales, d), (minima, dmin)))
    step, offset = np.maximum(d * small, 1e-12)[:, :, None], (dmin * small_min)[:, :, None]
    q = np.clip(np.rint((sub + offset) / step), 0, 2**bits - 1).astype(np.uint8)
    mixed = (small[:, 4:] & 15) | (small_min[:, 4:] & 15) << 4
    packed_scales = [small[:, :4] | small[:, 4:] >> 4 << 6, small_min[:, :4] | small_min[:, 4:] >> 4 << 6, mixed]
    low = (q[:, 0::2] & 15) | (q[:, 1::2] & 15) << 4
    parts = [d_bytes, dmin_bytes, *packed_scales]
    if bits == 5:
        parts.append(np.bitwise_or.reduce(q >> 4 << np.arange(8, dtype=np.uint8)[None, :, None], axis=1))
    return np.concatenate([*parts, low.reshape(len(blocks), 128)], axis=1)


def _q6_k(blocks: np.ndarray) -> np.ndarray:
    sub = blocks.reshape(len(blocks), 16, 16)
    # Scales may be negative: the side with the largest magnitude gets the extra step.
    largest = np.take_along_axis(sub, np.abs(sub).argmax(axis=2)[:, :, None], axis=2)[:, :, 0]
    scales = largest / -32
    d_bytes, d = _halves(np.abs(scales).max(axis=1) / 127)
    small = np.clip(np.rint(scales / d), -128, 127).astype(np.int8)
    step = d * small
    step[step == 0] = 1e-12
    q = np.clip(np.rint(sub / step[:, :, None]) + 32, 0, 63).astype(np.uint8).reshape(len(blocks), 2, 4, 32)
    low = (q[:, :, :2] & 15) | (q[:, :, 2:] & 15) << 4
    high = np.bitwise_or.reduce(q >> 4 << np.array([0, 2, 4, 6], dtype=np.uint8)[None, None, :, None], axis=2)
    size = len(blocks)
    return np.concatenate([low.reshape(size, 128), high.reshape(size, 64), small.view(np.uint8), d_bytes], axis=1)
