"""What this machine can do at most, measured: the denominators of a roofline."""

import ctypes
from typing import Any

from engine.errors import ConfigError
from engine.kernels.native_library import NativeLibrary

_READ_BYTES = 512 << 20  # well past any cache


def read_bandwidth(library: NativeLibrary, *, threads: int, num_bytes: int = _READ_BYTES) -> float:
    """Return the bytes a second that threads read from memory in huge pages, best of seven passes; about 0.3 s.

    Args:
        library: the built kernels.
        threads: 1..256; each reads its own part of the memory, which it touched first.
        num_bytes: read in a pass; what fits into a cache measures the cache.

    Raises:
        ConfigError: no such memory, or a number out of range.
    """
    return _measured(library, "read_bandwidth", ctypes.c_int64(num_bytes), ctypes.c_int32(threads))


def integer_peak(library: NativeLibrary, *, threads: int, instruction_set: str = "auto") -> float:
    """Return the operations a second of 8-bit dot products with operands in registers, best of seven passes; 0.2 s.

    A multiplication and its addition are two operations.

    Args:
        library: the built kernels.
        threads: 1..256.
        instruction_set: `auto` or one of INSTRUCTION_SETS; AMX's peak is some six times that of AVX-512.

    Raises:
        ConfigError: the machine lacks the instruction set, or a number out of range.
    """
    return _measured(library, "integer_peak", instruction_set.encode(), ctypes.c_int32(threads))


def bfloat16_peak(library: NativeLibrary, *, threads: int, instruction_set: str = "auto") -> tuple[float, str]:
    """Return the operations a second of bfloat16 dot products that add in float32, and what did them; 0.4 s.

    That is the fastest of `tdpbf16ps` (AMX), `vdpbf16ps` (AVX-512) and float32 instructions on values made float32, of
    which there are on this machine. Otherwise as `integer_peak`.
    """
    instruction = ctypes.c_char_p()
    peak = _measured(
        library,
        "bfloat16_peak",
        instruction_set.encode(),
        ctypes.c_int32(threads),
        outputs=(ctypes.byref(instruction),),
    )
    assert instruction.value is not None
    return peak, instruction.value.decode()


def _measured(
    library: NativeLibrary, name: str, *arguments: "bytes | ctypes._SimpleCData[int]", outputs: tuple[Any, ...] = ()
) -> float:
    found = ctypes.c_double()
    message = ctypes.create_string_buffer(300)
    function = getattr(library.handle, f"pellucid_{name}")
    if function(*arguments, ctypes.byref(found), *outputs, message, len(message)):
        raise ConfigError(f"`{name}`: {message.value.decode(errors='replace')}")
    return found.value
