"""Build the native kernels into one shared library, once per state of their sources.

The library lies in the user's cache under a key of its sources, flags and machine, so that checkouts of different
versions don't disturb each other, and nothing is built twice or found stale. Several builds at once are safe: each
writes to a directory of its own and moves the result into place.
"""

import hashlib
import logging
import os
import subprocess
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from engine.errors import ConfigError
from engine.kernels.artefact_header import discard_misfit, misfit
from engine.kernels.toolchain import Toolchain, find_toolchain, kernels_cache_dir, this_interpreter

log = logging.getLogger(__name__)

SOURCES = Path(__file__).parent / "native"
_LANGUAGE = ("-std=c++20", "-O3", "-fPIC", "-fvisibility=hidden", "-pthread", "-Wall", "-Wextra", "-Werror")
# Contraction is off because the kernels write their fused multiply-adds out: see lanes.h.
_ARITHMETIC = ("-fno-math-errno", "-fno-trapping-math", "-ffp-contract=off")
# Every such machine can ask for a line in order to write it (prfchw).
_AVX512 = (
    "-mavx512f", "-mavx512bw", "-mavx512vl", "-mavx512dq", "-mavx512vnni", "-mfma", "-mf16c", "-mprfchw",
    "-mprefer-vector-width=512",
)  # fmt: skip
_INSTRUCTION_SETS = {
    "kernels_avx2.cpp": ("-mavx2", "-mfma", "-mf16c"),
    "kernels_avx512.cpp": _AVX512,
    "kernels_avx512_bf16.cpp": (*_AVX512, "-mavx512bf16"),
    "kernels_amx.cpp": (*_AVX512, "-mavx512bf16", "-mamx-tile", "-mamx-int8", "-mamx-bf16"),
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


def find_library(cache: Path | None = None, say: Callable[[str], None] = log.warning) -> Path | None:
    """Return the newest library built from the present sources; None without one.

    A library that this interpreter must not load is deleted and told to `say`.
    """
    return newest_fitting(library_dir(cache), "pellucid-*.so", say)


def newest_fitting(directory: Path, pattern: str, say: Callable[[str], None]) -> Path | None:
    """Return the newest artefact of a directory that this interpreter can load; others are deleted and told."""
    found = sorted(directory.glob(pattern), key=lambda path: path.stat().st_mtime)
    fitting = [path for path in found if not discard_misfit(path, say)]
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
    toolchain = needed_toolchain()
    directory = library_dir(cache, extra_flags=extra_flags)
    name = hashlib.sha256(repr(toolchain).encode()).hexdigest()[:12]

    def make(scratch: Path) -> Path:
        sources = [path for path in source_files() if path.suffix == ".cpp"]
        progress(f"compiling {len(sources)} files with {toolchain.version}")
        flags = {source: (*_LANGUAGE, *_ARITHMETIC, *_flags_of(source), *extra_flags) for source in sources}
        return compile_and_link(toolchain, flags, scratch, link_flags=("-pthread", *extra_flags))

    return build_once(directory / f"pellucid-{name}.so", make, toolchain, progress)


def needed_toolchain() -> Toolchain:
    """Return the compiler; raises ConfigError without one."""
    toolchain = find_toolchain()
    if toolchain is None:
        raise ConfigError("no C++ compiler was found: install g++ or clang++, or set CXX")
    return toolchain


def build_once(
    artefact: Path, make: Callable[[Path], Path], toolchain: Toolchain, progress: Callable[[str], None]
) -> Path:
    """Return the artefact, made in a directory of its own and moved into place unless a fitting one is there.

    Raises:
        BuildError: the compiler failed, or builds for another machine.
    """
    if artefact.exists() and not discard_misfit(artefact, progress):
        return artefact
    artefact.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=artefact.parent) as scratch:
        made = make(Path(scratch))
        why = misfit(made)
        if why:
            raise BuildError(f"{toolchain.compiler} builds what can't be loaded: {why}")
        os.replace(made, artefact)
    return artefact


def compile_and_link(
    toolchain: Toolchain, flags: dict[Path, tuple[str, ...]], scratch: Path, *, link_flags: tuple[str, ...] = ()
) -> Path:
    """Compile each source with its flags, as many at a time as there are cores, and link them into one library.

    Raises:
        BuildError: the compiler failed; its output is in the message.
    """

    def compile_one(source: Path) -> Path:
        out = scratch / f"{source.stem}.o"
        _run([toolchain.compiler, *flags[source], "-c", str(source), "-o", str(out)])
        return out

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        objects = list(pool.map(compile_one, flags))
    library = scratch / "made.so"
    _run([toolchain.compiler, "-shared", *link_flags, *map(str, objects), "-o", str(library)])
    return library


def instruction_set_flags() -> dict[str, tuple[str, ...]]:
    """Return by instruction set what its file is compiled with; nothing on machines that aren't x86-64."""
    if this_interpreter().machine != "x86_64":
        return {}
    return {name.removeprefix("kernels_").removesuffix(".cpp"): flags for name, flags in _INSTRUCTION_SETS.items()}


def _flags_of(source: Path) -> tuple[str, ...]:
    return instruction_set_flags().get(source.stem.removeprefix("kernels_"), ())


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise BuildError(f"{' '.join(command)}\n{done.stderr[-4000:]}")
