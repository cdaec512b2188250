"""Every native kernel on every instruction set of this machine, against NumPy in float64, on odd shapes."""

import numpy as np
import pytest
import torch

from engine.errors import ConfigError
from engine.kernels.native_kernels import NativeKernels
from engine.kernels.numpy_kernels import in_eight_bits
from engine.quantization.gguf_blocks import block_format, dequantize_rows
from tests.support.native import ALL_INSTRUCTION_SETS, library_for, native_library, quantized

KV_DTYPES = ("float32", "bfloat16", "float16", "int8")
ROWS = (0, 1, 2, 3, 7, 8, 9, 41, 123)
BLOCK = 32
# Where 16-bit weights meet float rows: everywhere but in tiles, which take whole blocks.
FLOAT_ROWS = [
    (instruction_set, outputs, inputs)
    for instruction_set in ALL_INSTRUCTION_SETS
    for outputs, inputs in ((1, 1), (17, 64), (35, 7))
    if instruction_set != "amx" or inputs % BLOCK
]
BLOCK_ENCODINGS = ("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q4_K", "Q5_K", "Q6_K")
INT4_ENCODINGS = ("Q4_0", "Q4_1")  # that bfloat16 tiles take as they are
STEPS = {False: (127, 125), True: (120, 118)}  # of the two roundings: ordinary, and for half as many products


def is_halved(instruction_set: str, encoding: str) -> bool:
    """Return whether products with such weights take half as many multiplications there."""
    return instruction_set == "avx512_bf16" and encoding in ("Q4_0", "Q4_1", "Q4_K")


@pytest.fixture(params=ALL_INSTRUCTION_SETS)
def kernels(request: pytest.FixtureRequest) -> NativeKernels:
    return NativeKernels(library_for(request.param), request.param)


def noise(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def in_bfloat16(x: np.ndarray) -> np.ndarray:
    """Return values rounded to bfloat16, float64."""
    return torch.from_numpy(x).bfloat16().double().numpy()


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize(("outputs", "inputs"), [(1, 1), (15, 7), (16, 48), (35, 64)])
def test_float_matmul_odd_shapes_match_numpy(kernels: NativeKernels, rows: int, outputs: int, inputs: int) -> None:
    x, weights = noise(rows, inputs), noise(outputs, inputs, seed=1)
    expected = x.astype(np.float64) @ weights.T.astype(np.float64)
    np.testing.assert_allclose(kernels.matmul(x, weights, encoding="F32"), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("encoding", ["F16", "BF16"])
@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize(("instruction_set", "outputs", "inputs"), FLOAT_ROWS)
def test_half_precision_matmul_is_float_matmul_of_the_same_values(
    instruction_set: str, encoding: str, rows: int, outputs: int, inputs: int
) -> None:
    kernels = NativeKernels(library_for(instruction_set), instruction_set)
    x, weights = noise(rows, inputs), quantized(noise(outputs, inputs, seed=1), encoding)
    expected = kernels.matmul(x, dequantize_rows(weights, encoding), encoding="F32")
    assert np.array_equal(kernels.matmul(x, weights, encoding=encoding), expected)


@pytest.mark.parametrize("encoding", ["F16", "BF16"])
@pytest.mark.parametrize("rows", [*ROWS, 16, 17, 49, 65])
@pytest.mark.parametrize(("outputs", "inputs"), [(1, 32), (17, 64), (35, 160), (50, 2080)])
def test_half_precision_matmul_in_tiles_is_that_of_values_in_bfloat16(
    encoding: str, rows: int, outputs: int, inputs: int
) -> None:
    kernels = NativeKernels(library_for("amx"), "amx")
    x, weights = noise(rows, inputs), quantized(noise(outputs, inputs, seed=1), encoding)
    expected = in_bfloat16(x) @ in_bfloat16(dequantize_rows(weights, encoding)).T
    np.testing.assert_allclose(kernels.matmul(x, weights, encoding=encoding), expected, rtol=1e-5, atol=1e-4)


def int4_parts(weights: np.ndarray, encoding: str) -> tuple[np.ndarray, np.ndarray]:
    """Return what bfloat16 tiles multiply: weights [outputs, inputs], offsets [outputs, blocks] of the blocks' sums."""
    size = block_format(encoding).block_bytes
    blocks = weights.reshape(len(weights), -1, size)
    scales = blocks[:, :, :2].copy().view(np.float16).astype(np.float32)
    nibbles = np.concatenate([blocks[:, :, size - 16 :] & 15, blocks[:, :, size - 16 :] >> 4], axis=2)
    values = in_bfloat16(scales * (nibbles.astype(np.float32) - 8)).reshape(len(weights), -1)
    if encoding == "Q4_0":
        return values, np.zeros(scales.shape[:2])
    minima = blocks[:, :, 2:4].copy().view(np.float16).astype(np.float32)
    return values, in_bfloat16((minima + 8 * scales)[:, :, 0])


@pytest.mark.parametrize("encoding", INT4_ENCODINGS)
@pytest.mark.parametrize("rows", [*ROWS, 16, 17, 49, 65, 130])
@pytest.mark.parametrize(("outputs", "inputs"), [(1, 32), (17, 64), (35, 160), (50, 2080)])
def test_int4_matmul_in_tiles_is_that_of_values_in_bfloat16(
    encoding: str, rows: int, outputs: int, inputs: int
) -> None:
    kernels = NativeKernels(library_for("amx"), "amx")
    x, weights = noise(rows, inputs), quantized(noise(outputs, inputs, seed=1), encoding)
    values, offsets = int4_parts(weights, encoding)
    rounded = in_bfloat16(x)
    sums = in_bfloat16(rounded.reshape(rows, inputs // BLOCK, BLOCK).sum(axis=2).astype(np.float32))
    expected = rounded @ values.T + sums @ offsets.T
    found = kernels.matmul(x, weights, encoding=f"{encoding}:bfloat16")
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=2e-4)


@pytest.mark.parametrize("encoding", INT4_ENCODINGS)
def test_int4_matmul_in_tiles_has_the_same_bits_in_any_company(encoding: str) -> None:
    """Of few rows and many, of more than one opening serves, and of more inputs than are opened at a time."""
    kernels = NativeKernels(library_for("amx"), "amx")
    for inputs, rows in ((96, 530), (2080, 130)):
        x, weights = noise(rows, inputs), quantized(noise(50, inputs, seed=1), encoding)
        together = kernels.matmul(x, weights, encoding=f"{encoding}:bfloat16")
        for count in (1, 2, 3, 4, 7, 15, 16, 17, 33, 49, 64, 65, 97, rows - 23):
            for first in (0, 1, 23):
                part = kernels.matmul(x[first : first + count], weights, encoding=f"{encoding}:bfloat16")
                assert np.array_equal(part, together[first : first + count]), (inputs, first, count)


def test_sums_of_blocks_that_cancel_have_the_same_bits_in_any_company() -> None:
    """Few rows are rounded one by one, more side by side; both add in one order, which shows where much cancels."""
    kernels = NativeKernels(library_for("amx"), "amx")
    random = np.random.default_rng(3)
    halves = random.integers(-255, 256, (40, 4, BLOCK // 2)) * 2.0**18
    large = np.concatenate([halves, -halves], axis=2)
    x = random.permuted(large, axis=2).reshape(40, -1).astype(np.float32) + noise(40, 4 * BLOCK) * 1000
    weights = quantized(noise(33, 4 * BLOCK, seed=1) + 3, "Q4_1")
    together = kernels.matmul(x, weights, encoding="Q4_1:bfloat16")
    for first in range(40):
        alone = kernels.matmul(x[first : first + 1], weights, encoding="Q4_1:bfloat16")
        assert np.array_equal(alone, together[first : first + 1])


@pytest.mark.parametrize("encoding", INT4_ENCODINGS)
@pytest.mark.parametrize("inputs", [32, 96, 2080])
def test_packing_for_bfloat16_tiles_keeps_what_they_multiply(encoding: str, inputs: int) -> None:
    weights = quantized(noise(35, inputs) * 3, encoding)
    values, offsets = int4_parts(weights, encoding)
    unpacked = NativeKernels(library_for("amx"), "amx").unpack(weights, inputs, encoding=f"{encoding}:bfloat16")
    expected = values.astype(np.float32) + np.repeat(offsets, BLOCK, axis=1).astype(np.float32)
    assert np.array_equal(unpacked, expected)


@pytest.mark.parametrize("mantissa", [1024, 1025, 1371, 2040, 2047])
def test_int4_matmul_in_tiles_rounds_every_multiple_of_a_scale_to_nearest(mantissa: int) -> None:
    kernels = NativeKernels(library_for("amx"), "amx")
    scales = [sign * mantissa * 2.0**power for sign in (1, -1) for power in (-28, -24, -17, -10, 1)]
    rows = np.zeros((len(scales), 18), dtype=np.uint8)
    rows[:, :2] = np.array(scales, dtype=np.float16)[:, None].view(np.uint8)
    rows[:, 2:] = np.arange(16) * 17
    found = kernels.matmul(np.eye(BLOCK, dtype=np.float32), rows, encoding="Q4_0:bfloat16").T
    values, _ = int4_parts(rows, "Q4_0")
    # Scales under 2^-20 count as 0.
    np.testing.assert_allclose(found, np.where(np.abs(scales)[:, None] < 2.0**-20, 0, values), rtol=0, atol=1e-37)


@pytest.mark.parametrize("scale", [4096.0, -8192.0, np.inf, np.nan])
def test_packing_for_bfloat16_tiles_refuses_a_scale_without_a_code(scale: float) -> None:
    rows = np.zeros((1, 20), dtype=np.uint8)
    rows[0, :2] = np.array([scale], dtype=np.float16).view(np.uint8)
    with pytest.raises(ConfigError, match="scale is too large"):
        NativeKernels(library_for("amx"), "amx").unpack(rows, 32, encoding="Q4_1:bfloat16")


@pytest.mark.parametrize("name", ["avx512_bf16", "avx512", "avx2", "portable"])
def test_kernels_without_tiles_refuse_blocks_for_bfloat16(name: str) -> None:
    kernels = NativeKernels(library_for(name), name)
    with pytest.raises(ConfigError, match=f"{name} have no tiles for Q4_0:bfloat16"):
        kernels.unpack(np.zeros((1, 18), dtype=np.uint8), 32, encoding="Q4_0:bfloat16")


@pytest.mark.parametrize("encoding", BLOCK_ENCODINGS)
@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize(("outputs", "blocks"), [(1, 1), (17, 2), (35, 5)])
def test_quantized_matmul_odd_shapes_match_numpy(
    kernels: NativeKernels, encoding: str, rows: int, outputs: int, blocks: int
) -> None:
    inputs = blocks * block_format(encoding).block_size
    x, weights = noise(rows, inputs), quantized(noise(outputs, inputs, seed=1), encoding)
    steps = kernels.activation_steps(encoding, inputs)
    assert steps == ((120, 118) if is_halved(kernels.instruction_set, encoding) else (127, 125))
    expected = in_eight_bits(x, steps) @ dequantize_rows(weights, encoding).T.astype(np.float64)
    np.testing.assert_allclose(kernels.matmul(x, weights, encoding=encoding), expected, rtol=1e-4, atol=2e-4)


@pytest.mark.parametrize("encoding", ["F32", "F16", "BF16", *BLOCK_ENCODINGS])
@pytest.mark.parametrize("inputs", [96, 1280])
def test_matmul_row_has_the_same_bits_in_any_company(kernels: NativeKernels, encoding: str, inputs: int) -> None:
    inputs = max(inputs, block_format(encoding).block_size)
    x, weights = noise(90, inputs), quantized(noise(50, inputs, seed=1), encoding)
    together = kernels.matmul(x, weights, encoding=encoding)
    for count in (1, 2, 3, 4, 7, 8, 9, 15, 16, 17, 33, 49, 65):
        for first in (0, 1, 23):
            part = kernels.matmul(x[first : first + count], weights, encoding=encoding)
            assert np.array_equal(part, together[first : first + count]), (first, count)


@pytest.mark.parametrize("encoding", BLOCK_ENCODINGS)
@pytest.mark.parametrize("outputs", [16, 32, 48, 67])
def test_matmul_of_the_largest_integers_is_exact_for_few_and_for_many_rows(
    kernels: NativeKernels, encoding: str, outputs: int
) -> None:
    # Blocks of nothing but the largest steps of either sign, times weights of nothing but the largest and the smallest.
    rng, inputs = np.random.default_rng(11), 2 * max(608, block_format(encoding).block_size)
    inputs -= inputs % block_format(encoding).block_size
    x = np.repeat(rng.choice([-1.0, 1.0], (64, inputs // 16)), 16, axis=1).astype(np.float32)
    ends = np.repeat(rng.choice([-1.0, 1.0], (outputs, inputs // 16)), 16, axis=1).astype(np.float32)
    weights = quantized(ends, encoding)
    many = kernels.matmul(x, weights, encoding=encoding)
    few = np.concatenate([kernels.matmul(x[i : i + 8], weights, encoding=encoding) for i in range(0, 64, 8)])
    assert np.array_equal(many, few)
    np.testing.assert_allclose(many, x @ dequantize_rows(weights, encoding).T.astype(np.float64), rtol=1e-5, atol=1e-3)


@pytest.mark.parametrize("encoding", BLOCK_ENCODINGS)
@pytest.mark.parametrize("inputs", [32, 2048, 2080, 4128])
def test_amx_gives_the_bits_of_avx512(encoding: str, inputs: int) -> None:
    library, size = library_for("amx"), block_format(encoding).block_size
    inputs = -(-inputs // size) * size
    x, weights = noise(41, inputs), quantized(noise(35, inputs, seed=1), encoding)
    tiles, single = (NativeKernels(library, name).matmul(x, weights, encoding=encoding) for name in ("amx", "avx512"))
    assert np.array_equal(tiles, single)


@pytest.mark.parametrize("encoding", ["F16", "BF16", *BLOCK_ENCODINGS])
def test_packing_changes_no_value(kernels: NativeKernels, encoding: str) -> None:
    inputs = max(64, 2 * block_format(encoding).block_size)
    weights = quantized(noise(35, inputs) * 3, encoding)
    assert np.array_equal(kernels.unpack(weights, inputs, encoding=encoding), dequantize_rows(weights, encoding))


@pytest.mark.parametrize("encoding", ["Q4_K", "Q5_K", "Q6_K"])
def test_packing_any_bits_of_a_super_block_changes_no_value(encoding: str) -> None:
    size = block_format(encoding).block_bytes
    rows = np.random.default_rng(7).integers(0, 256, (19, 3 * size), dtype=np.uint8)
    for high_byte in {"Q6_K": (209,)}.get(encoding, (1, 3)):
        rows[:, high_byte::size] &= 0xBF  # finite scales
    unpacked = NativeKernels(native_library(), "portable").unpack(rows, 768, encoding=encoding)
    assert np.array_equal(unpacked, dequantize_rows(rows, encoding))


@pytest.mark.parametrize("scale", [2.0**-24, 2.0**-20, 2.0**-15, 2.0**-14, 1.0, 4094.0])
def test_packing_q4_0_any_scale_is_exact(scale: float) -> None:
    rows = np.zeros((4, 18), dtype=np.uint8)
    rows[:, :2] = np.array([scale, -scale, scale * 1.5, scale * 0.75], dtype=np.float16)[:, None].view(np.uint8)
    rows[:, 2:] = np.arange(16) * 17
    kernels = NativeKernels(native_library(), "portable")
    assert np.array_equal(kernels.unpack(rows, 32, encoding="Q4_0"), dequantize_rows(rows, "Q4_0"))


def test_packing_unknown_encoding_is_named() -> None:
    with pytest.raises(ConfigError, match="no native kernel for Q3_K"):
        NativeKernels(native_library(), "portable").unpack(np.zeros((1, 22), dtype=np.uint8), 32, encoding="Q3_K")


def left_over(x: np.ndarray, steps: np.ndarray) -> np.ndarray:
    """Return the squared error of each block [blocks, 32] as whole steps times the scale that fits them best."""
    scale = (x * steps).sum(axis=1) / np.maximum(1, (steps * steps).sum(axis=1))
    return ((x - scale[:, None] * steps) ** 2).sum(axis=1)


@pytest.mark.parametrize("is_halved", [False, True])
@pytest.mark.parametrize("blocks", [1, 3, 18])
def test_quantized_row_is_the_better_of_two_roundings_with_the_scale_that_fits_it(
    kernels: NativeKernels, blocks: int, is_halved: bool
) -> None:
    x = noise(blocks * BLOCK) * np.repeat(10.0 ** np.arange(blocks), BLOCK).astype(np.float32)
    x[:BLOCK] = 0
    row = kernels.quantize_row(x, is_halved=is_halved)
    given, values = x.astype(np.float64).reshape(blocks, BLOCK), row.values.astype(np.float64).reshape(blocks, BLOCK)
    largest = np.maximum(np.abs(given).max(axis=1, keepdims=True), 1e-30)
    errors = ((given - values * row.scales[:, None]) ** 2).sum(axis=1)
    best = np.minimum(*(left_over(given, np.rint(given * (most / largest))) for most in STEPS[is_halved]))
    np.testing.assert_allclose(errors, best, rtol=1e-2, atol=1e-12)  # of two that are as good either may be taken
    np.testing.assert_allclose(row.sums, row.scales * values.sum(axis=1), rtol=1e-6)


def test_quantized_row_for_half_the_products_starts_them_from_what_is_its_own(kernels: NativeKernels) -> None:
    row = kernels.quantize_row(noise(18 * BLOCK), is_halved=True)
    first, second = row.values.astype(np.int64).reshape(18, 2, BLOCK // 2).transpose(1, 0, 2)
    assert np.abs(row.values).max() == 120
    assert np.array_equal(row.starts, (8 * second - 120 * first - first * second).sum(axis=1))


def test_quantized_row_leaves_a_tenth_less_of_error_than_one_rounding(kernels: NativeKernels) -> None:
    x = noise(4096)
    row, given = kernels.quantize_row(x), x.astype(np.float64).reshape(-1, BLOCK)
    restored = row.values.reshape(-1, BLOCK) * row.scales[:, None].astype(np.float64)
    step = np.abs(given).max(axis=1, keepdims=True) / 127
    plain = ((given - np.rint(given / step) * step) ** 2).sum()
    assert ((given - restored) ** 2).sum() < 0.93 * plain


def test_quantized_row_of_whole_numbers_is_exact_whatever_the_instruction_set(kernels: NativeKernels) -> None:
    x = np.random.default_rng(3).integers(-126, 127, 8 * BLOCK).astype(np.float32)
    x[::BLOCK] = 127
    row = kernels.quantize_row(x)
    assert np.array_equal(row.values, x)
    assert np.array_equal(row.scales, np.ones(8))


@pytest.mark.parametrize("size", [1e-38, 1e-31, 1e30, 3e38])
def test_quantized_row_of_extreme_magnitudes_is_finite_and_close(kernels: NativeKernels, size: float) -> None:
    x = (noise(BLOCK).clip(-1, 1) * np.float32(size)).astype(np.float32)
    row = kernels.quantize_row(x)
    restored = row.values * row.scales[0].astype(np.float64)
    assert np.abs(restored - x).max() <= max(np.abs(x).max() / 125, 1e-30)


def hostile_blocks(rng: np.random.Generator, blocks: int) -> np.ndarray:
    """Return rows whose blocks are ordinary, sparse, heavy-tailed, of whole numbers, vanishing, huge or not finite."""
    x = rng.standard_normal((blocks, BLOCK)) * 10.0 ** rng.integers(-6, 6, (blocks, 1))
    kinds = rng.integers(0, 8, blocks)
    x[kinds == 1] *= rng.random((BLOCK,)) < 0.2
    x[kinds == 2] **= 3
    x[kinds == 3] = rng.integers(-127, 128, ((kinds == 3).sum(), BLOCK)) / 2
    x[kinds == 4] = rng.choice([0, 1e-45, -1e-31, 2e-30], ((kinds == 4).sum(), BLOCK))
    x = x.astype(np.float32)
    odd = np.array(
        [0x7F800000, 0xFF800000, 0x7FC000FF, 0xFFC12345, 0x7F800001, 0x7F7FFFFF, 0xFF7FC99F], dtype=np.uint32
    )
    places = (kinds[:, None] == 5) & (rng.random(x.shape) < 0.1)
    x[places] = rng.choice(odd, places.sum()).view(np.float32)
    return x.ravel()


@pytest.mark.parametrize("is_halved", [False, True])
@pytest.mark.parametrize("instruction_set", ["amx", "avx512_bf16", "avx512", "avx2"])
@pytest.mark.parametrize("blocks", [1, 2, 4, 15, 16, 17, 18, 48])
def test_quantized_row_has_the_bits_of_the_portable_kernel(instruction_set: str, blocks: int, is_halved: bool) -> None:
    library, rng = library_for(instruction_set), np.random.default_rng(blocks)
    kernels, portable = NativeKernels(library, instruction_set), NativeKernels(library, "portable")
    for _ in range(60):
        x = hostile_blocks(rng, blocks)
        row, expected = (each.quantize_row(x, is_halved=is_halved) for each in (kernels, portable))
        np.testing.assert_array_equal(row.values, expected.values)
        np.testing.assert_array_equal(row.starts, expected.starts)
        np.testing.assert_array_equal(row.scales, expected.scales)
        np.testing.assert_array_equal(row.sums, expected.sums)


def rests_of(kernels: NativeKernels, x: np.ndarray, encoding: str) -> np.ndarray:
    """Return what the rounding of rows left over, rounded again, in an eighth of each one's blocks, float64."""
    rests = np.zeros(x.shape)
    for given, rest in zip(x, rests, strict=True):
        row = kernels.quantize_row(given, is_halved=is_halved(kernels.instruction_set, encoding))
        left = given.reshape(-1, BLOCK) - row.scales[:, None] * row.values.reshape(-1, BLOCK).astype(np.float32)
        largest = np.argsort(-row.scales, kind="stable")[: -(-len(row.scales) // 8)]
        rest.reshape(-1, BLOCK)[largest] = in_eight_bits(left[largest])
    return rests


def uneven(rows: int, inputs: int) -> np.ndarray:
    """Return noise whose blocks differ in size, the same ones in most rows."""
    sizes = np.exp(noise(1, inputs // BLOCK, seed=2) + noise(rows, inputs // BLOCK, seed=3) / 4)
    return noise(rows, inputs) * np.repeat(sizes, BLOCK, axis=1)


def whole_blocks(encoding: str, blocks: int) -> int:
    """Return at least so many blocks' inputs, of which rows of the encoding can be made."""
    size = block_format(encoding).block_size
    return -(-blocks * BLOCK // size) * size


@pytest.mark.parametrize("encoding", BLOCK_ENCODINGS)
@pytest.mark.parametrize("rows", [0, 1, 7, 41])
@pytest.mark.parametrize(("outputs", "blocks"), [(1, 1), (17, 9), (35, 18), (50, 64)])
def test_rests_odd_shapes_match_numpy(
    kernels: NativeKernels, encoding: str, rows: int, outputs: int, blocks: int
) -> None:
    inputs = whole_blocks(encoding, blocks)
    x, weights = uneven(rows, inputs), quantized(noise(outputs, inputs, seed=1), encoding)
    expected = rests_of(kernels, x, encoding) @ dequantize_rows(weights, encoding).T.astype(np.float64)
    found = kernels.add_rests(np.zeros((rows, outputs), dtype=np.float32), x, weights, encoding=encoding)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("encoding", BLOCK_ENCODINGS)
def test_rests_are_added_and_bring_products_nearer_to_exact_ones(kernels: NativeKernels, encoding: str) -> None:
    inputs = whole_blocks(encoding, 18)
    x, weights = uneven(40, inputs), quantized(noise(35, inputs, seed=1), encoding)
    exact = x.astype(np.float64) @ dequantize_rows(weights, encoding).T
    once = kernels.matmul(x, weights, encoding=encoding)
    twice = kernels.add_rests(once, x, weights, encoding=encoding)
    assert (twice - exact).std() < 0.75 * (once - exact).std()


@pytest.mark.parametrize("blocks", [1, 18])
def test_rests_of_equal_scales_are_those_of_the_first_blocks(kernels: NativeKernels, blocks: int) -> None:
    x, weights = np.tile(noise(3, BLOCK), blocks), quantized(noise(35, blocks * BLOCK, seed=1), "Q8_0")
    rests = rests_of(kernels, x, "Q8_0")
    assert not rests[:, (blocks + 7) // 8 * BLOCK :].any()
    found = kernels.add_rests(np.zeros((3, 35), dtype=np.float32), x, weights, encoding="Q8_0")
    np.testing.assert_allclose(found, rests @ dequantize_rows(weights, "Q8_0").T, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("encoding", BLOCK_ENCODINGS)
@pytest.mark.parametrize("blocks", [18, 64])
def test_rests_of_a_row_have_the_same_bits_in_any_company(kernels: NativeKernels, encoding: str, blocks: int) -> None:
    inputs = whole_blocks(encoding, blocks)
    x, weights = uneven(90, inputs), quantized(noise(50, inputs, seed=1), encoding)
    y = noise(90, 50, seed=4)
    together = kernels.add_rests(y, x, weights, encoding=encoding)
    for count in (1, 2, 3, 8, 31, 32, 33, 49, 65):
        for first in (0, 1, 23):
            some = slice(first, first + count)
            assert np.array_equal(kernels.add_rests(y[some], x[some], weights, encoding=encoding), together[some])


@pytest.mark.parametrize(
    ("instruction_set", "encoding"),
    [
        (instruction_set, encoding)
        for instruction_set in ("amx", "avx512_bf16", "avx2")
        for encoding in BLOCK_ENCODINGS
        if not is_halved(instruction_set, encoding)  # whose rows are rounded to other steps
    ],
)
def test_rests_have_the_bits_of_avx512_where_products_are_fused(encoding: str, instruction_set: str) -> None:
    library, inputs = library_for(instruction_set), whole_blocks(encoding, 18)
    library_for("avx512")
    x, weights, y = uneven(41, inputs), quantized(noise(35, inputs, seed=1), encoding), noise(41, 35, seed=4)
    ours, theirs = (
        NativeKernels(library, name).add_rests(y, x, weights, encoding=encoding) for name in (instruction_set, "avx512")
    )
    assert np.array_equal(ours, theirs)


@pytest.mark.parametrize("encoding", ["F32", "F16"])
def test_rests_of_rows_that_stay_floats_are_refused(kernels: NativeKernels, encoding: str) -> None:
    with pytest.raises(ConfigError, match=f"not rounded to 8 bits for {encoding}"):
        kernels.add_rests(noise(2, 3), noise(2, 64), quantized(noise(3, 64), encoding), encoding=encoding)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("encoding", ["Q4_1", "Q8_0"])
def test_rests_of_bad_input_are_bad_in_its_row_only(kernels: NativeKernels, encoding: str, bad: float) -> None:
    x, weights, y = uneven(9, 576), quantized(noise(20, 576, seed=1), encoding), noise(9, 20)
    clean = kernels.add_rests(y, x, weights, encoding=encoding)
    x[4, 37] = bad
    x[4, 96:] = bad  # more blocks than have rests
    found = kernels.add_rests(y, x, weights, encoding=encoding)
    assert not np.isfinite(found[4]).any()
    others = np.arange(9) != 4
    assert np.array_equal(found[others], clean[others])


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("rows", [9, 20, 50])
@pytest.mark.parametrize("encoding", ["F32", "F16", "BF16", "Q4_1", "Q8_0"])
def test_matmul_bad_input_gives_bad_output_in_its_row_only(
    kernels: NativeKernels, encoding: str, rows: int, bad: float
) -> None:
    x, weights = noise(rows, 64), quantized(noise(20, 64, seed=1), encoding)
    clean = kernels.matmul(x, weights, encoding=encoding)
    x[4, 37] = bad
    y = kernels.matmul(x, weights, encoding=encoding)
    assert not np.isfinite(y[4]).any()
    others = np.arange(rows) != 4
    assert np.array_equal(y[others], clean[others])


@pytest.mark.parametrize("size", [1, 8, 15, 16, 17, 48, 576])
def test_rms_norm_matches_formula(kernels: NativeKernels, size: int) -> None:
    x, weight = noise(size), noise(size, seed=1)
    expected = x / np.sqrt(np.mean(x.astype(np.float64) ** 2) + 1e-5) * weight
    np.testing.assert_allclose(kernels.rms_norm(x, weight, 1e-5), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("size", [1, 7, 16, 88, 1536])
def test_swiglu_matches_formula(kernels: NativeKernels, size: int) -> None:
    gate, up = 20 * noise(size), noise(size, seed=1)
    expected = gate.astype(np.float64) / (1 + np.exp(-gate.astype(np.float64))) * up
    np.testing.assert_allclose(kernels.swiglu(gate, up), expected, rtol=1e-5, atol=1e-6)


def test_swiglu_has_the_same_bits_in_any_place(kernels: NativeKernels) -> None:
    gate, up = 40 * noise(83), noise(83, seed=1)
    gate[:8] = -np.inf, np.inf, np.nan, -0.0, 87, -88, 88.5, 1e-40
    alone = [kernels.swiglu(gate[i : i + 1], up[i : i + 1])[0] for i in range(83)]
    np.testing.assert_array_equal(kernels.swiglu(gate, up), alone)


@pytest.mark.parametrize("times", [1, 5])
def test_swiglu_extreme_gates_neither_overflow_nor_vanish(kernels: NativeKernels, times: int) -> None:
    gate = np.array([-1e30, -200, -87, 0, 87, 200, 1e30] * times, dtype=np.float32)
    out = kernels.swiglu(gate, np.ones_like(gate))
    np.testing.assert_allclose(out, [0, 0, 0, 0, 87, 200, 1e30] * times, rtol=1e-6, atol=1e-6)
    assert np.isnan(kernels.swiglu(np.full(16, np.nan, dtype=np.float32), np.ones(16, dtype=np.float32))).all()


def stored(values: np.ndarray, kv_dtype: str) -> np.ndarray:
    """Return [..., head_dim] as the cache gives it back, float64."""
    if kv_dtype == "int8":
        largest = np.abs(values).max(axis=-1, keepdims=True)
        return np.rint(values * (np.float32(127) / largest)).astype(np.float64) * (largest / np.float32(127))
    return torch.from_numpy(values).to(getattr(torch, kv_dtype)).double().numpy()


class PagedKeys:
    """Random keys and values of a sequence of `length` tokens in scattered blocks; unused slots hold NaN."""

    def __init__(self, length: int, *, block_size: int, head_dim: int, kv_dtype: str = "float32") -> None:
        num_blocks = -(-length // block_size)
        self.block_size, self.kv_dtype = block_size, kv_dtype
        self.table = np.random.default_rng(5).permutation(num_blocks + 3)[:num_blocks].astype(np.int32)
        self.keys, self.values = noise(length, 2, head_dim, seed=2), noise(length, 2, head_dim, seed=3)

    def run(self, kernels: NativeKernels, query: np.ndarray, *, kv_head: int, first_num_keys: int) -> np.ndarray:
        return kernels.attention(
            query, self.keys, self.values, self.table,
            kv_dtype=self.kv_dtype, block_size=self.block_size, kv_head=kv_head, first_num_keys=first_num_keys,
        )  # fmt: skip

    def attend(self, query: np.ndarray, kv_head: int, first_num_keys: int) -> np.ndarray:
        """Return the textbook's attention over what the cache holds, float64."""
        out = np.empty(query.shape)
        held_keys, held_values = stored(self.keys, self.kv_dtype), stored(self.values, self.kv_dtype)
        for i, heads in enumerate(query.astype(np.float64)):
            scores = heads @ held_keys[: first_num_keys + i, kv_head].T / np.sqrt(query.shape[2])
            weights = np.exp(scores - scores.max(axis=1, keepdims=True))
            weights /= weights.sum(axis=1, keepdims=True)
            out[i] = weights @ held_values[: first_num_keys + i, kv_head]
        return out


@pytest.mark.parametrize("kv_dtype", KV_DTYPES)
@pytest.mark.parametrize("block_size", [1, 7, 8, 16, 32])
@pytest.mark.parametrize("head_dim", [2, 16, 24, 32, 64, 80, 96, 128])
def test_attention_any_block_size_and_head_dim_matches_formula(
    kernels: NativeKernels, kv_dtype: str, block_size: int, head_dim: int
) -> None:
    for length in (1, 2, 16, 17, 70, 131):
        cache = PagedKeys(length, block_size=block_size, head_dim=head_dim, kv_dtype=kv_dtype)
        num_queries = min(length, 12)  # 36 rows: two tiles side by side and one alone
        query = 3 * noise(num_queries, 3, head_dim)
        first = length - num_queries + 1
        out = cache.run(kernels, query, kv_head=1, first_num_keys=first)
        in_bfloat16 = kernels.instruction_set in ("amx", "avx512_bf16") and kv_dtype == "bfloat16"
        if in_bfloat16 and head_dim % 32 == 0 and block_size % 16 == 0:  # queries and weights in 8 bits of precision
            query = torch.from_numpy(query).bfloat16().float().numpy()
            np.testing.assert_allclose(out, cache.attend(query, 1, first), rtol=0, atol=2**-8 * 4)
        else:
            np.testing.assert_allclose(out, cache.attend(query, 1, first), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kv_dtype", KV_DTYPES)
@pytest.mark.parametrize("group", [1, 2, 3, 4, 5, 8])
@pytest.mark.parametrize(("block_size", "head_dim"), [(7, 64), (16, 64), (32, 64), (16, 32), (16, 96)])
def test_attention_query_has_the_same_bits_in_any_tile(
    kernels: NativeKernels, kv_dtype: str, group: int, block_size: int, head_dim: int
) -> None:
    cache = PagedKeys(100, block_size=block_size, head_dim=head_dim, kv_dtype=kv_dtype)
    query = noise(8, group, head_dim)
    together = cache.run(kernels, query, kv_head=0, first_num_keys=93)
    for first in range(8):
        for count in range(1, 9 - first):
            part = cache.run(kernels, query[first : first + count], kv_head=0, first_num_keys=93 + first)
            assert np.array_equal(part, together[first : first + count]), (first, count)


@pytest.mark.parametrize("kv_dtype", KV_DTYPES)
@pytest.mark.parametrize("place", [0, 3, 40])
def test_attention_nan_key_or_value_reaches_the_output(kernels: NativeKernels, kv_dtype: str, place: int) -> None:
    for spoil in ("keys", "values"):
        cache = PagedKeys(41, block_size=16, head_dim=32, kv_dtype=kv_dtype)
        spoilt = cache.keys if spoil == "keys" else cache.values
        spoilt[place, 0, 5 if spoil == "keys" else slice(None)] = np.nan
        assert np.isnan(cache.run(kernels, noise(1, 2, 32), kv_head=0, first_num_keys=41)).all(), spoil
        assert np.isfinite(cache.run(kernels, noise(1, 2, 32), kv_head=1, first_num_keys=41)).all(), spoil


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("kv_dtype", KV_DTYPES)
def test_attention_later_nan_is_unseen_by_earlier_queries(kernels: NativeKernels, kv_dtype: str, bad: float) -> None:
    cache = PagedKeys(41, block_size=16, head_dim=32, kv_dtype=kv_dtype)
    query = noise(8, 3, 32)
    clean = cache.run(kernels, query, kv_head=0, first_num_keys=34)
    cache.keys[38, 0], cache.values[38, 0] = bad, bad
    out = cache.run(kernels, query, kv_head=0, first_num_keys=34)
    assert np.array_equal(out[:5], clean[:5])
    assert not np.isfinite(out[5:]).any()


def test_attention_float16_takes_the_largest_for_values_beyond_its_range(kernels: NativeKernels) -> None:
    """One key, so the output is its value as stored: also where rounding is subtle."""
    cache = PagedKeys(1, block_size=16, head_dim=16, kv_dtype="float16")
    cache.values[0, 0] = [
        1e6, -1e6, 65519, 65520, np.inf, -np.inf, 2**-24, 2**-25, 3 * 2**-25, -(2**-15), 1 + 2**-11, 1 + 3 * 2**-11,
        0, 2**-14 - 2**-25, -1e-9, 3.4e38,
    ]  # fmt: skip
    out = cache.run(kernels, np.zeros((1, 1, 16), dtype=np.float32), kv_head=0, first_num_keys=1)[0, 0]
    with np.errstate(over="ignore"):
        expected = cache.values[0, 0].astype(np.float16).astype(np.float32)
    expected[[0, 1, 3, 15]] = [65504, -65504, 65504, 65504]
    assert np.array_equal(out, expected)


def test_attention_too_many_rows_are_refused(kernels: NativeKernels) -> None:
    cache = PagedKeys(40, block_size=16, head_dim=16)
    with pytest.raises(ConfigError, match="too many rows"):
        cache.run(kernels, noise(33, 3, 16), kv_head=0, first_num_keys=1)


def test_instruction_set_missing_or_unknown_is_named() -> None:
    with pytest.raises(ConfigError, match="this machine has no sse9"):
        NativeKernels(native_library(), "sse9").swiglu(noise(4), noise(4))
