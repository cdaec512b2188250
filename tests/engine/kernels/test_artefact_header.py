"""Headers of each format, whole, truncated, of either byte order and word size, before anything is loaded."""

import struct
import sys
from pathlib import Path

import pytest

from engine.kernels.artefact_header import discard_misfit, misfit, read_target
from engine.kernels.toolchain import Target, this_interpreter


def elf(machine: int, *, bits: int = 64, order: str = "<", segments: tuple[tuple[int, int], ...] = ()) -> bytes:
    """Make an ELF header and its program headers, loadable segments of (offset, size)."""
    is_64 = bits == 64
    ident = b"\x7fELF" + bytes([2 if is_64 else 1, 1 if order == "<" else 2, 1]) + bytes(9)
    size = 64 if is_64 else 52
    head = struct.pack(order + ("HHIQQQIHHHHHH" if is_64 else "HHIIIIIHHHHHH"),
                       3, machine, 1, 0, size, 0, 0, size, 56 if is_64 else 32, len(segments), 0, 0, 0)  # fmt: skip
    if is_64:
        entries = (struct.pack(order + "IIQQQQQQ", 1, 5, at, at, at, long, long, 4096) for at, long in segments)
    else:
        entries = (struct.pack(order + "IIIIIIII", 1, at, at, at, long, long, 5, 4096) for at, long in segments)
    return ident + head + b"".join(entries)


def mach_o(machine: int, *, bits: int = 64, order: str = "<") -> bytes:
    return struct.pack(order + "IIIIIII", 0xFEEDFACF if bits == 64 else 0xFEEDFACE, machine, 0, 6, 0, 0, 0)


def fat(*machines: int) -> bytes:
    slices = (struct.pack(">IIIII", machine, 0, 4096, 100, 12) for machine in machines)
    return struct.pack(">II", 0xCAFEBABE, len(machines)) + b"".join(slices)


def pe(machine: int, kind: int, *, start: int = 64) -> bytes:
    return b"MZ" + bytes(58) + struct.pack("<I", start) + bytes(start - 64) + b"PE\0\0" + (
        struct.pack("<H", machine) + bytes(18) + struct.pack("<H", kind)
    )  # fmt: skip


@pytest.mark.parametrize(
    ("head", "target"),
    [
        (elf(62), Target("x86_64", 64)),
        (elf(183), Target("aarch64", 64)),
        (elf(3, bits=32), Target("i386", 32)),
        (elf(40, bits=32), Target("arm", 32)),
        (elf(62, bits=32), Target("x86_64", 32)),
        (elf(22, order=">"), Target("big-endian ELF machine 22", 64)),
        (elf(183, order=">"), Target("big-endian aarch64", 64)),
        (mach_o(0x0100000C), Target("aarch64", 64)),
        (mach_o(0x01000007), Target("x86_64", 64)),
        (mach_o(7, bits=32), Target("i386", 32)),
        (mach_o(18, bits=32, order=">"), Target("Mach-O machine 18", 32)),
        (mach_o(0x01000012, order=">"), Target("Mach-O machine 16777234", 64)),
        (fat(18, 0x01000012), Target("Mach-O machine 18", 32)),
        (pe(0x8664, 0x20B), Target("x86_64", 64)),
        (pe(0xAA64, 0x20B, start=248), Target("aarch64", 64)),
        (pe(0x14C, 0x10B), Target("i386", 32)),
    ],
)
def test_target_of_each_format_is_read(tmp_path: Path, head: bytes, target: Target) -> None:
    path = tmp_path / "library"
    path.write_bytes(head)
    assert read_target(path) == target
    if target != this_interpreter():
        assert misfit(path) == f"made for {target}, this interpreter is {this_interpreter()}"


@pytest.mark.parametrize("whole", [elf(62)[:20], mach_o(0x01000007)[:8], fat(7)[:12], pe(0x8664, 0x20B)])
def test_target_of_every_truncated_header_is_none(tmp_path: Path, whole: bytes) -> None:
    path = tmp_path / "library"
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        assert read_target(path) is None, length
        assert misfit(path) == "it is no whole shared library"


@pytest.mark.parametrize(
    "head",
    [
        b"#!/bin/sh\n",
        b"\x7fELF\x07\x01" + bytes(12) + b"\x3e\0",
        b"\x7fELF\x02\x03" + bytes(12) + b"\x3e\0",
        b"MZ" + bytes(58) + b"\x40\0\0\0NE\0\0" + bytes(100),
        b"MZ" + bytes(58) + b"\xff\xff\xff\xff" + bytes(100),
        b"\xca\xfe\xba\xbe\0\0\0\x34" + bytes(100),  # a Java class file
    ],
)
def test_target_of_something_else_is_none(tmp_path: Path, head: bytes) -> None:
    path = tmp_path / "library"
    path.write_bytes(head)
    assert read_target(path) is None


@pytest.mark.skipif(sys.byteorder != "little", reason="the fat file is for this machine")
def test_fat_file_with_a_slice_for_this_interpreter_fits(tmp_path: Path) -> None:
    own = {"x86_64": 0x01000007, "aarch64": 0x0100000C}.get(this_interpreter().machine)
    if own is None:
        pytest.skip("no Mach-O for this machine")
    path = tmp_path / "library"
    path.write_bytes(fat(18, own))
    assert misfit(path) == ""
    path.write_bytes(fat(18))
    assert misfit(path) != ""


@pytest.mark.skipif(this_interpreter().machine != "x86_64", reason="headers for x86-64")
def test_elf_file_cut_off_inside_a_segment_is_a_misfit(tmp_path: Path) -> None:
    path = tmp_path / "library"
    whole = elf(62, segments=((0, 4096), (4096, 1000)))
    whole += bytes(5096 - len(whole))
    path.write_bytes(whole)
    assert misfit(path) == ""
    path.write_bytes(whole[:-1])
    assert misfit(path) == "it is cut off: 1 bytes are missing"
    path.write_bytes(whole[:100])
    assert misfit(path).startswith("it is cut off")


def test_misfit_is_deleted_and_named_in_one_line(tmp_path: Path) -> None:
    path, said = tmp_path / "library", []
    path.write_bytes(elf(40, bits=32))
    assert discard_misfit(path, said.append)
    assert said == [f"deleted {path}: made for arm (32-bit), this interpreter is {this_interpreter()}"]
    assert not path.exists()


def test_interpreter_itself_fits(tmp_path: Path) -> None:
    said: list[str] = []
    path = tmp_path / "library"
    path.write_bytes(Path(sys.executable).resolve().read_bytes())
    assert not discard_misfit(path, said.append)
    assert (path.exists(), said) == (True, [])
