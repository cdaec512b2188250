"""Setting: which C++ compiler builds the native kernels, and where what it builds is kept."""

import os
import platform
import shutil
import struct
import subprocess
from dataclasses import dataclass
from pathlib import Path

from engine.model.cache_dir import models_cache_dir

_CANDIDATES = ("g++", "clang++", "c++")


@dataclass(frozen=True, slots=True)
class Toolchain:
    """A C++ compiler.

    Attributes:
        compiler: its path.
        version: the first line of what `--version` says.
    """

    compiler: str
    version: str


@dataclass(frozen=True, slots=True)
class Target:
    """What an artefact must be made for, so that this interpreter can load it.

    Attributes:
        machine: as `platform.machine()` says it, lower case; `amd64` is `x86_64` and `arm64` is `aarch64`.
        bits: word size, 32 or 64.
    """

    machine: str
    bits: int

    def __str__(self) -> str:
        return f"{self.machine} ({self.bits}-bit)"


def this_interpreter() -> Target:
    """Return the running interpreter's machine and word size; a 32-bit one on a 64-bit machine is of its own kind."""
    machine, bits = platform.machine().lower(), 8 * struct.calcsize("P")
    machine = {"amd64": "x86_64", "arm64": "aarch64"}.get(machine, machine)
    return Target({"x86_64": "i386", "aarch64": "arm"}.get(machine, machine) if bits == 32 else machine, bits)


def find_toolchain() -> Toolchain | None:
    """Return the compiler named by `$CXX`, else the first of g++, clang++ and c++ that runs; None without one."""
    named = os.environ.get("CXX", "")
    for name in (named,) if named else _CANDIDATES:
        path = shutil.which(name)
        if path is None:
            continue
        said = subprocess.run([path, "--version"], capture_output=True, text=True, check=False)
        if said.returncode == 0 and said.stdout:
            return Toolchain(path, said.stdout.splitlines()[0])
    return None


def kernels_cache_dir() -> Path:
    """Return `pellucid/kernels` in the user's cache directory. It may be absent."""
    return models_cache_dir().parent / "kernels"
