"""The measured ceilings: their order is checked, not their size, which is the machine's."""

import pytest

from engine.errors import ConfigError
from engine.kernels.ceilings import bfloat16_peak, integer_peak, read_bandwidth
from tests.support.native import library_for, native_library


def test_read_bandwidth_is_that_of_a_machine() -> None:
    found = read_bandwidth(native_library(), threads=2, num_bytes=64 << 20)
    assert 1e8 < found < 1e13


def test_integer_peak_is_higher_with_wider_instructions() -> None:
    library = native_library()
    peaks = [integer_peak(library, threads=1, instruction_set=name) for name in reversed(library.instruction_sets())]
    assert peaks[0] > 1e8
    assert peaks[-1] < 1e15
    assert len(peaks) == 1 or peaks[-1] > 2 * peaks[0]
    # The same instructions, at another moment: a busy neighbour on the core halves them.
    assert integer_peak(library, threads=1) > 0.2 * peaks[-1]


def test_bfloat16_peak_is_that_of_the_instruction_it_names() -> None:
    library = native_library()
    found = {name: bfloat16_peak(library, threads=1, instruction_set=name) for name in library.instruction_sets()}
    peaks = [peak for peak, _ in found.values()]
    assert all(1e8 < peak < 1e15 for peak in peaks)
    assert len(peaks) == 1 or peaks[0] > peaks[-1]
    possible = {
        "amx": {"tdpbf16ps"},
        "avx512_bf16": {"vdpbf16ps"},
        "avx512": {"vdpbf16ps", "float32 FMA"},
        "avx2": {"float32 FMA"},
        "portable": {"float32 FMA", "float32 multiplication and addition"},
    }
    assert all(instruction in possible[name] for name, (_, instruction) in found.items())


def test_ceilings_out_of_range_are_named() -> None:
    library = native_library()
    with pytest.raises(ConfigError, match="threads must lie in"):
        read_bandwidth(library, threads=0)
    with pytest.raises(ConfigError, match="at least a page"):
        read_bandwidth(library, threads=2, num_bytes=100)
    with pytest.raises(ConfigError, match="threads must lie in"):
        integer_peak(library, threads=300)
    with pytest.raises(ConfigError, match="threads must lie in"):
        bfloat16_peak(library, threads=0)
    with pytest.raises(ConfigError, match="no sse9"):
        bfloat16_peak(library, threads=1, instruction_set="sse9")
    with pytest.raises(ConfigError, match="no sse9"):
        integer_peak(library, threads=1, instruction_set="sse9")


def test_amx_is_the_best_where_it_is() -> None:
    assert library_for("amx").instruction_set("auto") == "amx"
