"""What the native kernels and the bindings are built with, what is built, and what is missing and why."""

import importlib.metadata
import importlib.util
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from engine.errors import ConfigError
from engine.kernels.binding_build import BINDINGS, binding_path, find_package, python_headers
from engine.kernels.build import instruction_set_flags, library_dir, newest_fitting
from engine.kernels.native_library import INSTRUCTION_SETS, NativeLibrary
from engine.kernels.toolchain import Toolchain, find_toolchain, kernels_cache_dir, this_interpreter


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked for.

    Attributes:
        subject: what.
        found: whether it is there.
        detail: version and place, or why it isn't there and what brings it.
        needed_for: what doesn't work without it.
    """

    subject: str
    found: bool
    detail: str
    needed_for: str


@dataclass(frozen=True, slots=True)
class Artefact:
    """Something that is compiled on this machine.

    Attributes:
        name: `library` (the kernels themselves), `pybind11`, `nanobind`.
        state: `built`; `would be built`; `can't be built`.
        detail: the file, or why not.
    """

    name: str
    state: str
    detail: str


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Everything found.

    Attributes:
        interpreter: machine and word size.
        cache: where artefacts are kept.
        discarded: files that this interpreter must not load, deleted just now, a line each.
    """

    interpreter: str
    cache: str
    findings: list[Finding]
    artefacts: list[Artefact]
    discarded: list[str]

    @property
    def ok(self) -> bool:
        """Whether the kernels that serve are built or can be."""
        return self.artefacts[0].state != "can't be built"


def diagnose() -> Diagnosis:
    """Look at everything; deletes artefacts that this interpreter must not load, builds nothing."""
    toolchain = find_toolchain()
    discarded: list[str] = []
    library = newest_fitting(library_dir(), "pellucid-*.so", discarded.append)
    findings = [*_compiler_findings(toolchain), _headers_finding(), *_package_findings()]
    findings += [*_instruction_set_findings(library), *_gpu_findings()]
    artefacts = [_artefact("library", library, toolchain), *(_binding(name, toolchain, discarded) for name in BINDINGS)]
    return Diagnosis(str(this_interpreter()), str(kernels_cache_dir()), findings, artefacts, discarded)


def _compiler_findings(toolchain: Toolchain | None) -> Iterator[Finding]:
    needed_for = "building anything"
    if toolchain is None:
        yield Finding("C++ compiler", False, "install g++ or clang++, or set CXX to one that runs", needed_for)
        return
    yield Finding("C++ compiler", True, f"{toolchain.version}, {toolchain.compiler}", needed_for)
    for name, flags in instruction_set_flags().items():
        command = [toolchain.compiler, "-std=c++20", *flags, "-fsyntax-only", "-x", "c++", os.devnull]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        said = done.stderr.strip().splitlines()
        detail = " ".join(flags) if done.returncode == 0 else (said or ["refused"])[0]
        yield Finding(f"compiler's {name}", done.returncode == 0, detail, f"the {name} kernels")


def _headers_finding() -> Finding:
    try:
        return Finding("Python.h", True, str(python_headers()), "the pybind11 and nanobind modules")
    except ConfigError as error:
        return Finding("Python.h", False, error.message, "the pybind11 and nanobind modules")


def _package_findings() -> Iterator[Finding]:
    for name in BINDINGS:
        try:
            yield Finding(name, True, find_package(name).version, f"the laboratory's {name} backend")
        except ConfigError as error:
            yield Finding(name, False, error.message, f"the laboratory's {name} backend")


def _instruction_set_findings(library: Path | None) -> Iterator[Finding]:
    if library is None:
        yield Finding("instruction sets", False, "told by the library once it is built", "knowing which kernels run")
        return
    here = NativeLibrary(library).instruction_sets()
    for name in INSTRUCTION_SETS:
        detail = "this machine has it" if name in here else "this machine has it not"
        yield Finding(f"instruction set {name}", name in here, detail, f"the {name} kernels")


def _gpu_findings() -> Iterator[Finding]:
    import torch

    has_device = torch.cuda.is_available()
    detail = torch.cuda.get_device_name() if has_device else f"torch {torch.__version__} sees none"
    yield Finding("CUDA device", has_device, detail, "the torch-cuda and triton backends")
    has_triton = importlib.util.find_spec("triton") is not None
    detail = importlib.metadata.version("triton") if has_triton else "not installed; torch for CUDA brings it"
    yield Finding("triton", has_triton, detail, "the triton backend")


def _binding(name: str, toolchain: Toolchain | None, discarded: list[str]) -> Artefact:
    try:
        path = binding_path(find_package(name))
        python_headers()
    except ConfigError as error:
        return Artefact(name, "can't be built", error.message)
    found = newest_fitting(path.parent, path.name, discarded.append)
    return _artefact(name, found, toolchain)


def _artefact(name: str, built: Path | None, toolchain: Toolchain | None) -> Artefact:
    if built is not None:
        return Artefact(name, "built", str(built))
    if toolchain is None:
        return Artefact(name, "can't be built", "no C++ compiler")
    return Artefact(name, "would be built", f"with {toolchain.version}")
