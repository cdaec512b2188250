"""What a shared library says about itself in its first bytes (ELF, Mach-O, PE), checked before it is loaded.

A library of another machine or word size fails to load with a message of the loader's own choice, and a truncated one
ends the process with a bus error. Here both are found by reading a few bytes.
"""

import struct
from collections.abc import Callable
from pathlib import Path

from engine.kernels.toolchain import Target, this_interpreter

_HEAD_BYTES = 4096
_ELF = {3: "i386", 40: "arm", 62: "x86_64", 183: "aarch64", 243: "riscv64"}
_MACH_O = {7: "i386", 12: "arm", 0x01000007: "x86_64", 0x0100000C: "aarch64"}
_PE = {0x14C: "i386", 0x1C4: "arm", 0x8664: "x86_64", 0xAA64: "aarch64"}
_MACH_O_MAGICS = {
    b"\xcf\xfa\xed\xfe": ("<", 64),
    b"\xce\xfa\xed\xfe": ("<", 32),
    b"\xfe\xed\xfa\xcf": (">", 64),
    b"\xfe\xed\xfa\xce": (">", 32),
}
_FAT_MAGIC = b"\xca\xfe\xba\xbe"
_MAX_FAT_SLICES = 16  # a Java class file has the same magic and a version above this in the place of the count
_PT_LOAD = 1


def read_target(path: Path) -> Target | None:
    """Return the machine and word size that a library was built for; None when it is no whole library header.

    A machine that isn't known here is named by its number. Of a Mach-O file for several machines the slice for this
    interpreter is told, else the first.
    """
    with path.open("rb") as file:
        head = file.read(_HEAD_BYTES)
    try:
        if head[:4] == b"\x7fELF":
            return _elf_target(head)
        if head[:4] in _MACH_O_MAGICS:
            order, bits = _MACH_O_MAGICS[head[:4]]
            return _named(_MACH_O, "Mach-O", struct.unpack_from(order + "I", head, 4)[0], bits)
        if head[:4] == _FAT_MAGIC:
            return _fat_target(head)
        if head[:2] == b"MZ":
            return _pe_target(head)
    except (struct.error, IndexError, KeyError):
        return None
    return None


def misfit(path: Path) -> str:
    """Return why this interpreter must not load the library, as part of a sentence; "" when it may."""
    made_for = read_target(path)
    if made_for is None:
        return "it is no whole shared library"
    if made_for != this_interpreter():
        return f"made for {made_for}, this interpreter is {this_interpreter()}"
    missing = _missing_bytes(path)
    return f"it is cut off: {missing} bytes are missing" if missing > 0 else ""


def discard_misfit(path: Path, say: Callable[[str], None]) -> bool:
    """Delete a library that this interpreter must not load and say so in one line; return whether it was deleted."""
    why = misfit(path)
    if why:
        path.unlink(missing_ok=True)
        say(f"deleted {path}: {why}")
    return bool(why)


def _named(names: dict[int, str], form: str, machine: int, bits: int) -> Target:
    return Target(names.get(machine, f"{form} machine {machine}"), bits)


def _elf_target(head: bytes) -> Target:
    order = {1: "<", 2: ">"}[head[5]]
    (machine,) = struct.unpack_from(order + "H", head, 18)
    target = _named(_ELF, "ELF", machine, {1: 32, 2: 64}[head[4]])
    return target if order == "<" else Target(f"big-endian {target.machine}", target.bits)


def _fat_target(head: bytes) -> Target | None:
    (count,) = struct.unpack_from(">I", head, 4)
    if not 1 <= count <= _MAX_FAT_SLICES:
        return None
    machines = [struct.unpack_from(">I", head, 8 + 20 * i)[0] for i in range(count)]
    targets = [_named(_MACH_O, "Mach-O", machine, 64 if machine & 0x01000000 else 32) for machine in machines]
    return this_interpreter() if this_interpreter() in targets else targets[0]


def _pe_target(head: bytes) -> Target | None:
    (start,) = struct.unpack_from("<I", head, 60)
    if head[start : start + 4] != b"PE\0\0":
        return None
    (machine,) = struct.unpack_from("<H", head, start + 4)
    (kind,) = struct.unpack_from("<H", head, start + 24)
    return _named(_PE, "PE", machine, {0x10B: 32, 0x20B: 64}[kind])


def _missing_bytes(path: Path) -> int:
    """Return how far the segments that an ELF file would map reach past its end; 0 for other formats."""
    with path.open("rb") as file:
        head = file.read(_HEAD_BYTES)
    if head[:4] != b"\x7fELF":
        return 0
    is_64, order = head[4] == 2, "<" if head[5] == 1 else ">"
    try:
        (first,) = struct.unpack_from(order + ("Q" if is_64 else "I"), head, 32 if is_64 else 28)
        entry_size, count = struct.unpack_from(order + "HH", head, 54 if is_64 else 42)
        ends = [0]
        for at in range(first, first + count * entry_size, entry_size):
            if struct.unpack_from(order + "I", head, at)[0] == _PT_LOAD:
                offset, size = (
                    struct.unpack_from(order + form, head, at + place)[0]
                    for form, place in ((("Q", 8), ("Q", 32)) if is_64 else (("I", 4), ("I", 16)))
                )
                ends.append(offset + size)
    except (struct.error, ValueError):
        return 1  # the program headers themselves aren't all there
    return max(ends) - path.stat().st_size
