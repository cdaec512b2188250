"""Build the pybind11 and nanobind modules over the kernels' C interface: for the laboratory alone, never for serving.

Both come as headers and sources inside their Python packages and are compiled like the library itself. The modules hold
no kernel: they take the functions out of the library that the executor loads.
"""

import hashlib
import importlib.metadata
import sysconfig
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from engine.errors import ConfigError
from engine.kernels.artefact_header import discard_misfit
from engine.kernels.build import SOURCES, build_once, compile_and_link, needed_toolchain
from engine.kernels.toolchain import kernels_cache_dir, this_interpreter

BINDINGS = ("pybind11", "nanobind")
_FLAGS = ("-std=c++20", "-O2", "-DNDEBUG", "-fPIC", "-fvisibility=hidden", "-pthread")
_WARNINGS = ("-Wall", "-Wextra", "-Werror")


@dataclass(frozen=True, slots=True)
class BindingPackage:
    """An installed binding library.

    Attributes:
        name: `pybind11` or `nanobind`.
        version: of its Python package.
        flags: what its headers need of the compiler.
        sources: its own sources, compiled into each module.
    """

    name: str
    version: str
    flags: tuple[str, ...]
    sources: tuple[Path, ...]


def find_package(name: str) -> BindingPackage:
    """Return the binding library and how to compile against it; raises ConfigError when it isn't installed."""
    try:
        if name == "pybind11":
            import pybind11

            return BindingPackage(name, importlib.metadata.version(name), ("-isystem", pybind11.get_include()), ())
        import nanobind

        include, sources = Path(nanobind.include_dir()), Path(nanobind.source_dir())
        own = ("-isystem", str(include), "-isystem", str(include.parent / "ext" / "robin_map" / "include"))
        return BindingPackage(
            name, importlib.metadata.version(name), (*own, "-fno-strict-aliasing"), (sources / "nb_combined.cpp",)
        )
    except ImportError:
        raise ConfigError(f"{name} is not installed: pip install 'pellucid[lab]'") from None


def python_headers() -> Path:
    """Return the directory of Python.h; raises ConfigError when this interpreter came without it."""
    directory = Path(sysconfig.get_paths()["include"])
    if not (directory / "Python.h").is_file():
        raise ConfigError(f"no Python.h in {directory}: install the interpreter's development package")
    return directory


def binding_path(package: BindingPackage, cache: Path | None = None) -> Path:
    """Return where the module of the present sources for this interpreter lies or would lie."""
    soabi = sysconfig.get_config_var("SOABI")
    digest = hashlib.sha256(repr((_FLAGS, _WARNINGS, package, this_interpreter(), soabi)).encode())
    for path in (*_module_sources(package.name), SOURCES / "kernel_api.h", SOURCES / "c_boundary.h"):
        digest.update(path.read_bytes())
    return (cache or kernels_cache_dir()) / "bindings" / f"pellucid_{package.name}-{digest.hexdigest()[:24]}.so"


def find_binding(name: str, say: Callable[[str], None], cache: Path | None = None) -> Path | None:
    """Return the built module, None without one; a misfit is deleted and told to `say`.

    Raises:
        ConfigError: the binding library isn't installed.
    """
    path = binding_path(find_package(name), cache)
    return path if path.exists() and not discard_misfit(path, say) else None


def build_binding(name: str, progress: Callable[[str], None], cache: Path | None = None) -> Path:
    """Return the module, building it if it isn't there.

    Raises:
        ConfigError: the binding library, the interpreter's headers or a compiler is missing.
        BuildError: the compiler failed; its output is in the message.
    """
    package = find_package(name)
    toolchain = needed_toolchain()
    flags = (*_FLAGS, "-isystem", str(python_headers()), *package.flags)

    def make(scratch: Path) -> Path:
        progress(f"compiling the {name} {package.version} module with {toolchain.version}")
        ours = SOURCES / "bindings" / f"{name}_module.cpp"
        each = {ours: (*flags, *_WARNINGS)} | dict.fromkeys(package.sources, flags)
        return compile_and_link(toolchain, each, scratch, link_flags=("-pthread",))

    return build_once(binding_path(package, cache), make, toolchain, progress)


def _module_sources(name: str) -> tuple[Path, Path]:
    return SOURCES / "bindings" / "kernel_library.h", SOURCES / "bindings" / f"{name}_module.cpp"
