"""Each block format against a scalar decoder written from ggml's definition of the format."""

import struct
from collections.abc import Callable

import gguf
import numpy as np
import pytest

from engine.errors import ModelLoadError
from engine.quantization.gguf_blocks import SUPPORTED_ENCODINGS, block_format, block_format_of_type, dequantize_rows

Block = bytes


def half(raw: bytes) -> float:
    return float(struct.unpack("<e", raw)[0])


def q8_0(block: Block) -> list[float]:
    scale = half(block[:2])
    return [scale * quant for quant in struct.unpack("<32b", block[2:])]


def q4_0(block: Block) -> list[float]:
    scale, quants = half(block[:2]), block[2:]
    return [scale * ((q & 15) - 8) for q in quants] + [scale * ((q >> 4) - 8) for q in quants]


def q4_1(block: Block) -> list[float]:
    scale, low, quants = half(block[:2]), half(block[2:4]), block[4:]
    return [scale * (q & 15) + low for q in quants] + [scale * (q >> 4) + low for q in quants]


def five_bits(high: bytes, quants: bytes) -> list[int]:
    bits = int.from_bytes(high, "little")
    lower = [(q & 15) | (bits >> j & 1) << 4 for j, q in enumerate(quants)]
    return lower + [(q >> 4) | (bits >> (j + 16) & 1) << 4 for j, q in enumerate(quants)]


def q5_0(block: Block) -> list[float]:
    scale = half(block[:2])
    return [scale * (q - 16) for q in five_bits(block[2:6], block[6:])]


def q5_1(block: Block) -> list[float]:
    scale, low = half(block[:2]), half(block[2:4])
    return [scale * q + low for q in five_bits(block[4:8], block[8:])]


def scale_and_min(packed: bytes, j: int) -> tuple[int, int]:
    """Unpack the j-th of eight 6-bit (scale, min) pairs out of 12 bytes."""
    if j < 4:
        return packed[j] & 63, packed[j + 4] & 63
    scale = (packed[j + 4] & 15) | (packed[j - 4] >> 6) << 4
    return scale, (packed[j + 4] >> 4) | (packed[j] >> 6) << 4


def q4_k(block: Block) -> list[float]:
    scale, low, packed, quants = half(block[:2]), half(block[2:4]), block[4:16], block[16:]
    values: list[float] = []
    for group in range(8):
        s, m = scale_and_min(packed, group)
        chunk = quants[group // 2 * 32 : group // 2 * 32 + 32]
        values += [scale * s * ((q >> 4) if group % 2 else q & 15) - low * m for q in chunk]
    return values


def q5_k(block: Block) -> list[float]:
    scale, low, packed, high, quants = half(block[:2]), half(block[2:4]), block[4:16], block[16:48], block[48:]
    values: list[float] = []
    for group in range(8):
        s, m = scale_and_min(packed, group)
        chunk = quants[group // 2 * 32 : group // 2 * 32 + 32]
        four = [(q >> 4) if group % 2 else q & 15 for q in chunk]
        values += [scale * s * (q + 16 * (high[j] >> group & 1)) - low * m for j, q in enumerate(four)]
    return values


def q6_k(block: Block) -> list[float]:
    lower, upper, scales, scale = block[:128], block[128:192], struct.unpack("<16b", block[192:208]), half(block[208:])
    values = [0.0] * 256
    for part in range(2):
        ql, qh, sc = lower[part * 64 :], upper[part * 32 :], scales[part * 8 :]
        for j in range(32):
            quants = (
                (ql[j] & 15) | (qh[j] & 3) << 4,
                (ql[j + 32] & 15) | (qh[j] >> 2 & 3) << 4,
                (ql[j] >> 4) | (qh[j] >> 4 & 3) << 4,
                (ql[j + 32] >> 4) | (qh[j] >> 6 & 3) << 4,
            )
            for quarter, quant in enumerate(quants):
                values[part * 128 + quarter * 32 + j] = scale * sc[j // 16 + 2 * quarter] * (quant - 32)
    return values


def f32(block: Block) -> list[float]:
    return [float(struct.unpack("<f", block)[0])]


def f16(block: Block) -> list[float]:
    return [half(block)]


def bf16(block: Block) -> list[float]:
    return [float(struct.unpack("<f", b"\0\0" + block)[0])]


REFERENCES: dict[str, Callable[[Block], list[float]]] = {
    "F32": f32, "F16": f16, "BF16": bf16, "Q8_0": q8_0, "Q4_0": q4_0, "Q4_1": q4_1, "Q5_0": q5_0, "Q5_1": q5_1,
    "Q4_K": q4_k, "Q5_K": q5_k, "Q6_K": q6_k,
}  # fmt: skip
# Where the half-precision scales of a block lie: random bytes there could be inf or NaN.
SCALES_AT = {
    "F16": (0,), "Q8_0": (0,), "Q4_0": (0,), "Q4_1": (0, 2), "Q5_0": (0,), "Q5_1": (0, 2), "Q4_K": (0, 2),
    "Q5_K": (0, 2), "Q6_K": (208,),
}  # fmt: skip


def random_rows(encoding: str, *, num_rows: int, num_blocks: int) -> np.ndarray:
    """Draw blocks of every bit pattern, with scales between -2 and 2."""
    generator = np.random.default_rng(5)
    form = block_format(encoding)
    blocks = generator.integers(0, 256, (num_rows, num_blocks, form.block_bytes), dtype=np.uint8)
    for at in SCALES_AT.get(encoding, ()):
        scales = generator.uniform(-2, 2, (num_rows, num_blocks, 1)).astype("<f2")
        blocks[:, :, at : at + 2] = scales.view(np.uint8)
    if encoding in ("F32", "BF16"):
        values = generator.standard_normal((num_rows, num_blocks, 1)).astype("<f4")
        blocks = values.view(np.uint8)[:, :, 4 - form.block_bytes :]
    return np.ascontiguousarray(blocks).reshape(num_rows, -1)


@pytest.mark.parametrize("encoding", SUPPORTED_ENCODINGS)
@pytest.mark.parametrize(("num_rows", "num_blocks"), [(1, 1), (3, 2), (41, 1), (48, 3)])
def test_dequantize_rows_gives_the_values_of_the_formats_definition(
    encoding: str, num_rows: int, num_blocks: int
) -> None:
    rows = random_rows(encoding, num_rows=num_rows, num_blocks=num_blocks)
    form = block_format(encoding)
    expected = [
        [
            value
            for block in range(num_blocks)
            for value in REFERENCES[encoding](bytes(row.reshape(num_blocks, -1)[block]))
        ]
        for row in rows
    ]
    decoded = dequantize_rows(rows, encoding)
    assert decoded.dtype == np.float32
    assert decoded.shape == (num_rows, num_blocks * form.block_size)
    np.testing.assert_allclose(decoded, np.array(expected), rtol=1e-6, atol=1e-5)
    assert np.abs(decoded).max() > 0


@pytest.mark.parametrize("encoding", SUPPORTED_ENCODINGS)
def test_dequantize_rows_of_unaligned_read_only_bytes_gives_a_writable_copy(encoding: str) -> None:
    rows = random_rows(encoding, num_rows=2, num_blocks=2)
    shifted = np.frombuffer(b"\0" + rows.tobytes(), dtype=np.uint8)[1:].reshape(rows.shape)
    decoded = dequantize_rows(shifted, encoding)
    np.testing.assert_array_equal(decoded, dequantize_rows(rows, encoding))
    assert decoded.flags.writeable
    assert not np.shares_memory(decoded, shifted)


def test_block_format_q4_1_packs_32_elements_in_20_bytes() -> None:
    form = block_format("Q4_1")
    assert (form.block_size, form.block_bytes, form.row_bytes(576)) == (32, 20, 360)


def test_block_format_of_type_knows_exactly_the_supported_encodings() -> None:
    known = {int(kind): kind.name for kind in gguf.GGMLQuantizationType}
    for type_id in range(64):
        if known.get(type_id) in SUPPORTED_ENCODINGS:
            assert block_format_of_type(type_id, tensor="t").encoding == known[type_id]
        else:
            with pytest.raises(ModelLoadError, match="tensor `t` has "):
                block_format_of_type(type_id, tensor="t")
