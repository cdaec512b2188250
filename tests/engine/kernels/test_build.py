"""The build of the native kernels: built once, found again, and never loaded for another machine."""

import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from engine.errors import ConfigError
from engine.kernels import build
from engine.kernels.artefact_header import misfit
from engine.kernels.build import BuildError, build_library, find_library, library_dir
from engine.kernels.native_kernels import NativeKernels
from engine.kernels.native_library import NativeLibrary
from engine.kernels.toolchain import find_toolchain, kernels_cache_dir, this_interpreter
from tests.support.native import native_library

ROOT = Path(__file__).resolve().parents[3]


def fake_compiler(tmp_path: Path, script: str) -> Path:
    """Make a compiler that answers --version and otherwise runs the shell script; $OUT is the file after -o."""
    path = tmp_path / "fake-c++"
    path.write_text(
        '#!/bin/sh\nif [ "$1" = --version ]; then echo fake 1.0; exit 0; fi\n'
        'while [ "$1" != -o ]; do shift; done\nOUT=$2\n' + script + "\n"
    )
    path.chmod(0o755)
    return path


LIBRARY_OF_THIS_MACHINE = f'cat "{Path(sys.executable).resolve()}" > "$OUT"'


def test_build_again_compiles_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", str(fake_compiler(tmp_path, LIBRARY_OF_THIS_MACHINE)))
    cache, said = tmp_path / "cache", []
    assert find_library(cache) is None
    first = build_library(said.append, cache)
    assert [line.split(" with ")[1] for line in said] == ["fake 1.0"]
    assert build_library(said.append, cache) == first == find_library(cache)
    assert len(said) == 1
    assert list(library_dir(cache).iterdir()) == [first]


def test_build_for_another_machine_is_deleted_named_and_built_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CXX", str(fake_compiler(tmp_path, LIBRARY_OF_THIS_MACHINE)))
    cache, said = tmp_path / "cache", []
    library = build_library(said.append, cache)
    whole = library.read_bytes()
    library.write_bytes(b"\x7fELF\x01\x01" + bytes(12) + (40).to_bytes(2, "little") + bytes(100))
    assert build_library(said.append, cache).read_bytes() == whole
    assert said[1] == f"deleted {library}: made for arm (32-bit), this interpreter is {this_interpreter()}"


def test_library_that_is_cut_off_is_deleted_and_named_when_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("CXX", str(fake_compiler(tmp_path, LIBRARY_OF_THIS_MACHINE)))
    library = build_library(lambda text: None, tmp_path / "cache")
    library.write_bytes(library.read_bytes()[:100])
    assert find_library(tmp_path / "cache") is None
    assert not library.exists()
    (record,) = caplog.records
    assert record.message.startswith(f"deleted {library}: it is ")


def test_build_that_fails_says_what_the_compiler_said_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CXX", str(fake_compiler(tmp_path, "echo 'error: no such flag' >&2; exit 1")))
    with pytest.raises(BuildError, match="error: no such flag"):
        build_library(lambda text: None, tmp_path / "cache")
    assert find_library(tmp_path / "cache") is None
    assert list(library_dir(tmp_path / "cache").iterdir()) == []


def test_build_without_instruction_sets_as_on_other_processors_computes_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = NativeKernels(native_library(), "portable")
    monkeypatch.setattr(build, "_INSTRUCTION_SETS", {})
    library = NativeLibrary(build_library(lambda text: None, tmp_path / "cache"))
    assert library.instruction_sets() == ["portable"]
    x, weights = np.linspace(-3, 2, 3 * 64, dtype=np.float32).reshape(3, 64), np.arange(5 * 40, dtype=np.uint8)
    weights = weights.reshape(5, 40) & 0x3F  # finite scales
    found, expected = (
        kernels.matmul(x, weights, encoding="Q4_1") for kernels in (NativeKernels(library, "portable"), usual)
    )
    assert np.array_equal(found, expected)
    assert np.abs(found).max() > 0


def test_build_compiler_of_another_machine_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", str(fake_compiler(tmp_path, 'echo nonsense > "$OUT"')))
    with pytest.raises(BuildError, match="it is no whole shared library"):
        build_library(lambda text: None, tmp_path / "cache")


def test_build_without_compiler_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert find_toolchain() is None
    with pytest.raises(ConfigError, match=r"^no C\+\+ compiler was found"):
        build_library(lambda text: None, tmp_path / "cache")


def test_build_several_at_once_give_one_whole_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", str(fake_compiler(tmp_path, LIBRARY_OF_THIS_MACHINE)))
    made: list[Path] = []
    builders = [
        threading.Thread(target=lambda: made.append(build_library(lambda text: None, tmp_path / "cache")))
        for _ in range(4)
    ]
    for builder in builders:
        builder.start()
    for builder in builders:
        builder.join()
    assert len(made) == 4
    assert set(made) == {find_library(tmp_path / "cache")}
    assert list(library_dir(tmp_path / "cache").iterdir()) == made[:1]


def test_kernels_cache_lies_in_the_user_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert kernels_cache_dir() == tmp_path / "pellucid" / "kernels"


def test_import_builds_nothing() -> None:
    code = (
        "import re, sys, subprocess; subprocess.Popen = None; import engine.build, engine.execution.native_executor;"
        "maps = open('/proc/self/maps').read() if sys.platform == 'linux' else '';"
        "sys.exit(re.search('pellucid-[0-9a-f]{12}', maps) is not None)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_built_library_header_matches_this_interpreter_and_offers_portable_code() -> None:
    library = native_library()
    assert isinstance(library, NativeLibrary)
    found = find_library()
    assert found is not None
    assert misfit(found) == ""
    assert library.instruction_sets()[-1] == "portable"
    assert library.instruction_set("auto") == library.instruction_sets()[0]


def test_library_of_something_else_is_a_config_error(tmp_path: Path) -> None:
    path = tmp_path / "not-a-library.so"
    path.write_bytes(b"\x7fELF and nothing more")
    with pytest.raises(ConfigError, match=r"can't be loaded: .*it is no whole shared library"):
        NativeLibrary(path)
    assert path.exists()
