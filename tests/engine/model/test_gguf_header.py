"""The header of a GGUF file that nobody vouches for: each fault is one ModelLoadError that names the field."""

import random
import tracemalloc

import numpy as np
import pytest

from engine.errors import ModelLoadError
from engine.model.gguf_header import GgufHeader, read_gguf_header
from tests.support import gguf_bytes as gb

DATA = b"\0" * 256


def read(raw: bytes) -> GgufHeader:
    return read_gguf_header(np.frombuffer(raw, dtype=np.uint8))


def with_tensor(*entries: bytes, pairs: tuple[bytes, ...] = (), num_tensors: int | None = None) -> bytes:
    head = gb.header(pairs, entries, num_tensors=num_tensors)
    return head + b"\0" * (-len(head) % 32) + DATA


def nested_array(depth: int) -> bytes:
    inner = gb.u32(gb.ARRAY) + gb.u64(1)
    return gb.string("deep") + gb.u32(gb.ARRAY) + inner * depth + gb.u32(gb.U8) + gb.u64(0)


def array_of(kind: int, count: int) -> bytes:
    return gb.string("many") + gb.u32(gb.ARRAY) + gb.u32(kind) + gb.u64(count)


HOSTILE = {
    "dimension of zero": (with_tensor(gb.entry("t", (1, 0))), r"tensor `t`: `dims\[1\]` must be at least 1, found 0"),
    "first dimension zero": (with_tensor(gb.entry("t", (0,))), r"tensor `t`: `dims\[0\]` must be at least 1"),
    "n_dims of 2^32 - 1": (
        with_tensor(gb.entry("t", (1, 1), n_dims=0xFFFFFFFF)),
        "tensor `t`: `n_dims` must be 1 to 4, found 4294967295",
    ),
    "n_dims of 5": (with_tensor(gb.entry("t", (1,) * 5)), "`n_dims` must be 1 to 4, found 5"),
    "n_dims of 0": (with_tensor(gb.entry("t", ())), "`n_dims` must be 1 to 4, found 0"),
    "dims 2^33 x 2^33": (with_tensor(gb.entry("t", (1 << 33, 1 << 33))), "tensor `t`: `dims` .* overflow"),
    "dims 2^32 x 2^32 wrapping to 0": (with_tensor(gb.entry("t", (1 << 32, 1 << 32))), "`dims` .* overflow"),
    "dims 2^64 - 1": (with_tensor(gb.entry("t", ((1 << 64) - 1,))), "`dims` .* overflow"),
    "dims larger than the file": (with_tensor(gb.entry("t", (1 << 40,))), "tensor `t`: `offset` 0 .* past the end"),
    "tensor count 2^60": (gb.header(num_tensors=1 << 60) + DATA, "`tensor count` says 1152921504606846976"),
    "tensor count one too high": (gb.header((), [gb.entry("t", (1,))], num_tensors=9), "`tensor count` says 9"),
    "metadata count 2^60": (gb.header(num_pairs=1 << 60) + DATA, "`metadata count` says 1152921504606846976"),
    "key length 2^63": (gb.header(num_pairs=1) + gb.u64(1 << 63) + DATA, "`key of metadata pair 0` must have 1 to 255"),
    "string length 2^63": (
        gb.header([gb.string("k") + gb.u32(gb.STRING) + gb.u64(1 << 63)]) + DATA,
        "`k`: string length: needs 9223372036854775808 bytes",
    ),
    "string length 2^63 in an array": (
        gb.header([array_of(gb.STRING, 2) + gb.u64(1 << 63)]) + DATA,
        "`many`: string length: needs",
    ),
    "array of 2^61 strings": (gb.header([array_of(gb.STRING, 1 << 61)]) + DATA, "`many`: needs"),
    "array of 2^61 numbers": (gb.header([array_of(gb.U64, 1 << 61)]) + DATA, "`many`: needs"),
    "array nested 1000 deep": (gb.header([nested_array(1000)]) + DATA, "`deep` is an array of arrays"),
    "array nested twice": (gb.header([nested_array(1)]) + DATA, "`deep` is an array of arrays"),
    "unknown value type": (gb.header([gb.string("k") + gb.u32(13)]) + DATA, "`k` has the unknown value type 13"),
    "unknown element type": (gb.header([array_of(99, 1)]) + DATA, "`many` has the unknown element type 99"),
    "boolean of 2": (gb.header([gb.pair("k", gb.BOOL, 2)]) + DATA, "`k` is a boolean and must be 0 or 1, found 2"),
    "text that isn't UTF-8": (gb.header([gb.pair("k", gb.STRING, b"\xff\xfe")]) + DATA, "`k`: string 0 isn't UTF-8"),
    "empty key": (gb.header([gb.pair("", gb.U32, 1)]) + DATA, "`key of metadata pair 0` must have 1 to 255 bytes"),
    "key with a line end": (gb.header([gb.pair("a\nb", gb.U32, 1)]) + DATA, "must be printable, found 'a\\\\nb'"),
    "key twice": (gb.header([gb.pair("k", gb.U32, 1)] * 2) + DATA, "metadata key `k` occurs twice"),
    "empty tensor name": (with_tensor(gb.entry("", (1,))), "`name of tensor 0` must have 1 to 255 bytes"),
    "tensor name twice": (
        with_tensor(gb.entry("t", (1,)), gb.entry("t", (1,), offset=32)),
        "tensor `t` occurs twice",
    ),
    "alignment 0": (
        with_tensor(pairs=(gb.pair("general.alignment", gb.U32, 0),)),
        "`general.alignment` must be a power of two, found 0",
    ),
    "alignment 3": (
        with_tensor(pairs=(gb.pair("general.alignment", gb.U32, 3),)),
        "`general.alignment` must be a power of two, found 3",
    ),
    "alignment as text": (
        with_tensor(pairs=(gb.pair("general.alignment", gb.STRING, "32"),)),
        "`general.alignment` must be a power of two",
    ),
    "alignment 2^31": (
        with_tensor(gb.entry("t", (1,)), pairs=(gb.pair("general.alignment", gb.U32, 1 << 31),)),
        "past the end of the file",
    ),
    "offset beyond the end": (with_tensor(gb.entry("t", (1,), offset=1 << 20)), "tensor `t`: `offset` 1048576"),
    "offset near 2^64": (with_tensor(gb.entry("t", (1,), offset=(1 << 64) - 32)), "past the end of the file"),
    "last element past the end": (with_tensor(gb.entry("t", (65,))), "past the end of the file"),
    "offset unaligned": (with_tensor(gb.entry("t", (1,), offset=4)), "`offset` must be a multiple of 32, found 4"),
    "tensors that overlap": (
        with_tensor(gb.entry("a", (16,)), gb.entry("b", (1,), offset=32)),
        "tensor `b`: `offset` lies inside tensor `a`",
    ),
    "tensors at one place": (
        with_tensor(gb.entry("a", (1,)), gb.entry("b", (1,))),
        "tensor `b`: `offset` lies inside tensor `a`",
    ),
    "type 99": (with_tensor(gb.entry("t", (32,), kind=99)), "tensor `t` has the unknown type 99"),
    "type 4, removed from the format": (with_tensor(gb.entry("t", (32,), kind=4)), "tensor `t` has the unknown type 4"),
    "type IQ2_XXS": (
        with_tensor(gb.entry("t", (256,), kind=16)),
        "tensor `t` has type IQ2_XXS, which can't be decoded",
    ),
    "type I8": (with_tensor(gb.entry("t", (32,), kind=24)), "tensor `t` has type I8, which can't be decoded"),
    "K-quant rows of 896": (
        with_tensor(gb.entry("t", (896, 1), kind=gb.TYPE_Q4_K)),
        "tensor `t`: rows of 896 elements can't be split into Q4_K blocks of 256",
    ),
    "rows of 33 in blocks of 32": (
        with_tensor(gb.entry("t", (33,), kind=gb.TYPE_Q8_0)),
        "tensor `t`: rows of 33 elements can't be split into Q8_0 blocks of 32",
    ),
    "magic GGUX": (gb.header(magic=b"GGUX") + DATA, "`magic` must be b'GGUF', found b'GGUX'"),
    "magic of a zip": (b"PK\x03\x04" + DATA, "`magic` must be b'GGUF'"),
    "big-endian version": (gb.header(version=b"\0\0\0\x03") + DATA, "`version` is 3 in big-endian order"),
    "version 1": (gb.header(version=b"\x01\0\0\0") + DATA, "`version` must be 2 or 3, found 1"),
    "version 4": (gb.header(version=b"\x04\0\0\0") + DATA, "`version` must be 2 or 3, found 4"),
    "nothing": (b"", "`magic`: needs 4 bytes, but the file ends after 0 more"),
}


@pytest.mark.parametrize(("raw", "message"), HOSTILE.values(), ids=HOSTILE.keys())
def test_header_with_one_fault_is_refused_in_one_line_without_allocating(raw: bytes, message: str) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(ModelLoadError, match=message) as caught:
            read(raw)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert "\n" not in caught.value.message
    assert len(caught.value.message) < 400
    assert peak_bytes < 100_000  # the interpreter's own small change; the counts above ask for up to 2^63


def test_header_cut_at_each_byte_is_refused() -> None:
    raw = gb.tiny_llama().encode()
    read(raw)
    for end in range(len(raw)):
        with pytest.raises(ModelLoadError):
            read(raw[:end])


def test_header_with_any_byte_changed_is_read_or_refused_but_never_crashes() -> None:
    raw = gb.tiny_llama().encode()
    end = raw.index(b"output_norm.weight") + 64
    draw = random.Random(20)
    num_refused = 0
    for _ in range(3000):
        changed = bytearray(raw)
        changed[draw.randrange(end)] = draw.choice((0, 1, 0x7F, 0x80, 0xFF, draw.randrange(256)))
        try:
            read(bytes(changed))
        except ModelLoadError:
            num_refused += 1
    assert num_refused > 1000


def test_header_of_a_whole_file_gives_values_and_places() -> None:
    raw = gb.complete_file(
        [
            gb.pair("a", gb.I32, -5),
            gb.pair("b", gb.STRING, "né"),
            gb.pair("c", gb.BOOL, 1),
            gb.array_pair("d", gb.STRING, ["x", "", "y"]),
            gb.array_pair("e", gb.U16, [1, 65535]),
            gb.pair("f", gb.U64, (1 << 64) - 1),
        ],
        {"t": gb.floats(np.arange(6.0).reshape(2, 3)), "u": gb.floats(np.ones(1))},
    )
    header = read(raw)
    e = header.metadata.pop("e")
    assert isinstance(e, np.ndarray)
    assert e.tolist() == [1, 65535]
    assert header.metadata == {"a": -5, "b": "né", "c": True, "d": ("x", "", "y"), "f": (1 << 64) - 1}
    t, u = header.tensors["t"], header.tensors["u"]
    assert (t.shape, t.format.encoding, t.num_bytes) == ((2, 3), "F32", 24)
    assert np.frombuffer(raw, "<f4", 6, t.start).tolist() == [0, 1, 2, 3, 4, 5]
    assert u.start - t.start == 32


def test_header_with_another_alignment_places_tensors_by_it() -> None:
    raw = gb.complete_file(
        [gb.pair("general.alignment", gb.U32, 8)],
        {"t": gb.floats(np.full(3, 7.0)), "u": gb.floats(np.full(1, 9.0))},
        alignment=8,
    )
    header = read(raw)
    assert header.tensors["u"].start - header.tensors["t"].start == 16
    assert np.frombuffer(raw, "<f4", 1, header.tensors["u"].start)[0] == 9.0


def test_header_of_version_2_is_read_like_version_3() -> None:
    assert read(gb.header(version=b"\x02\0\0\0")).version == 2
