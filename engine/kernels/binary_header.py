"""What a shared library says about itself in its first bytes: ELF, Mach-O and PE."""

import struct
from pathlib import Path

from engine.kernels.toolchain import Target

_ELF = {3: "i386", 40: "arm", 62: "x86_64", 183: "aarch64", 243: "riscv64"}
_MACH_O = {0x01000007: "x86_64", 0x0100000C: "aarch64"}
_PE = {0x14C: "i386", 0x8664: "x86_64", 0xAA64: "aarch64"}


def read_target(path: Path) -> Target | None:
    """Return the machine and word size that a library was built for; None when it is no whole library header.

    A machine that isn't known here is named by its number.
    """
    with path.open("rb") as file:
        head = file.read(4096)
    try:
        if head[:4] == b"\x7fELF":
            order = "<" if head[5] == 1 else ">"
            (machine,) = struct.unpack_from(order + "H", head, 18)
            return Target(_ELF.get(machine, f"ELF machine {machine}"), {1: 32, 2: 64}[head[4]])
        if head[:4] in (b"\xcf\xfa\xed\xfe", b"\xce\xfa\xed\xfe"):
            (machine,) = struct.unpack_from("<I", head, 4)
            return Target(_MACH_O.get(machine, f"Mach-O machine {machine}"), 64 if head[0] == 0xCF else 32)
        if head[:2] == b"MZ":
            (start,) = struct.unpack_from("<I", head, 60)
            if head[start : start + 4] != b"PE\0\0":
                return None
            (machine,) = struct.unpack_from("<H", head, start + 4)
            (kind,) = struct.unpack_from("<H", head, start + 24)
            return Target(_PE.get(machine, f"PE machine {machine}"), {0x10B: 32, 0x20B: 64}[kind])
    except (struct.error, IndexError, KeyError):
        return None
    return None
