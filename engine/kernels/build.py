"""Build the native kernels into one shared library, once per state of their sources.

The library lies in the user's cache under a key of its sources, flags and machine, so that checkouts of different
versions don't disturb each other, and nothing is built twice or found stale. Several builds at once are safe: each
writes to a directory of its own and moves the result into place.
"""

import hashlib
import os
import subprocess
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from engine.errors import ConfigError
from engine.kernels.binary_header import read_target
from engine.kernels.toolchain import Target, Toolchain, find_toolchain, kernels_cache_dir, this_interpreter

SOURCES = Path(__file__).parent / "native"
_LANGUAGE = ("-std=c++20", "-O3", "-fPIC", "-fvisibility=hidden", "-pthread", "-Wall", "-Wextra", "-Werror")
# Contraction is off because the kernels write their fused multiply-adds out: see lanes.h.
_ARITHMETIC = ("-fno-math-errno", "-fno-trapping-math", "-ffp-contract=off")
_AVX512 = (
    "-mavx512f", "-mavx512bw", "-mavx512vl", "-mavx512dq", "-mavx512vnni", "-mfma", "-mf16c",
    "-mprefer-vector-width=512",
)  # fmt: skip
_INSTRUCTION_SETS = {
    "kernels_avx2.cpp": ("-mavx2", "-mfma", "-mf16c"),
    "kernels_avx512.cpp": _AVX512,
    "kernels_amx.cpp": (*_AVX512, "-mamx-tile", "-mamx-int8"),
}


class BuildError(ConfigError):
    """The compiler refused the sources; the message holds its output."""


def source_files() -> list[Path]:
    """Return every file that goes into the library, sorted."""
    return sorted(path for path in SOURCES.iterdir() if path.suffix in (".cpp", ".h", ".inc"))


def library_dir(cache: Path | None = None, *, extra_flags: tuple[str, ...] = ()) -> Path:
    """Return the directory of libraries built from the present sources for this interpreter."""
    target = this_interpreter()
    digest = hashlib.sha256(repr((_LANGUAGE, _ARITHMETIC, _INSTRUCTION_SETS, extra_flags, target)).encode())
    for path in source_files():
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return (cache or kernels_cache_dir()) / digest.hexdigest()[:24]


def find_library(cache: Path | None = None) -> Path | None:
    """Return the newest library built from the present sources that this interpreter can load; None without one."""
    directory = library_dir(cache)
    found = sorted(directory.glob("pellucid-*.so"), key=lambda path: path.stat().st_mtime)
    fitting = [path for path in found if read_target(path) == this_interpreter()]
    return fitting[-1] if fitting else None


def build_library(
    progress: Callable[[str], None], cache: Path | None = None, *, extra_flags: tuple[str, ...] = ()
) -> Path:
    """Return the library of the present sources and compiler, building it if it isn't there.

    Args:
        progress: told what is being built, or that a file was deleted and why.
        cache: instead of the user's cache directory.
        extra_flags: further ones for every source and the link, e.g. of a sanitizer.

    Raises:
        ConfigError: no compiler.
        BuildError: the compiler failed; its output is in the message.
    """
    toolchain = find_toolchain()
    if toolchain is None:
        raise ConfigError("no C++ compiler was found: install g++ or clang++, or set CXX")
    directory = library_dir(cache, extra_flags=extra_flags)
    name = hashlib.sha256(repr(toolchain).encode()).hexdigest()[:12]
    library = directory / f"pellucid-{name}.so"
    if library.exists():
        made_for = read_target(library)
        if made_for == this_interpreter():
            return library
        progress(f"deleted {library}: made for {made_for}, this interpreter is {this_interpreter()}")
        library.unlink()
    directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=directory) as scratch:
        made = _compile(toolchain, Path(scratch), extra_flags, progress)
        made_for = read_target(made)
        if made_for != this_interpreter():
            raise BuildError(f"{toolchain.compiler} builds for {made_for}, this interpreter is {this_interpreter()}")
        os.replace(made, library)
    return library


def _compile(
    toolchain: Toolchain, scratch: Path, extra_flags: tuple[str, ...], progress: Callable[[str], None]
) -> Path:
    sources = [path for path in source_files() if path.suffix == ".cpp"]
    progress(f"compiling {len(sources)} files with {toolchain.version}")

    def compile_one(source: Path) -> Path:
        out = scratch / f"{source.stem}.o"
        flags = (*_LANGUAGE, *_ARITHMETIC, *_flags_of(source, this_interpreter()), *extra_flags)
        _run([toolchain.compiler, *flags, "-c", str(source), "-o", str(out)])
        return out

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        objects = list(pool.map(compile_one, sources))
    library = scratch / "pellucid.so"
    _run([toolchain.compiler, "-shared", "-pthread", *extra_flags, *map(str, objects), "-o", str(library)])
    return library


def _flags_of(source: Path, target: Target) -> tuple[str, ...]:
    return _INSTRUCTION_SETS.get(source.name, ()) if target.machine == "x86_64" else ()


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise BuildError(f"{' '.join(command)}\n{done.stderr[-4000:]}")
