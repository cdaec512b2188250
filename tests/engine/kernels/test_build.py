"""The build of the native kernels: built once, found again, and never loaded for another machine."""

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from engine.errors import ConfigError
from engine.kernels.binary_header import read_target
from engine.kernels.build import BuildError, build_library, find_library, library_dir
from engine.kernels.native_library import NativeLibrary
from engine.kernels.toolchain import Target, find_toolchain, kernels_cache_dir, this_interpreter
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


LIBRARY_OF_THIS_MACHINE = f'head -c 4096 "{sys.executable}" > "$OUT"'


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
    assert find_library(cache) is None
    assert build_library(said.append, cache).read_bytes() == whole
    assert said[1] == f"deleted {library}: made for {Target('arm', 32)}, this interpreter is {this_interpreter()}"


def test_build_that_fails_says_what_the_compiler_said_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CXX", str(fake_compiler(tmp_path, "echo 'error: no such flag' >&2; exit 1")))
    with pytest.raises(BuildError, match="error: no such flag"):
        build_library(lambda text: None, tmp_path / "cache")
    assert find_library(tmp_path / "cache") is None
    assert list(library_dir(tmp_path / "cache").iterdir()) == []


def test_build_compiler_of_another_machine_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", str(fake_compiler(tmp_path, 'echo nonsense > "$OUT"')))
    with pytest.raises(BuildError, match="builds for None"):
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
    assert read_target(found) == this_interpreter()
    assert library.instruction_sets()[-1] == "portable"
    assert library.instruction_set("auto") == library.instruction_sets()[0]


def test_library_of_something_else_is_a_config_error(tmp_path: Path) -> None:
    path = tmp_path / "not-a-library.so"
    path.write_bytes(b"\x7fELF and nothing more")
    with pytest.raises(ConfigError, match="can't be loaded"):
        NativeLibrary(path)


@pytest.mark.parametrize(
    ("head", "target"),
    [
        (b"\x7fELF\x02\x01" + bytes(12) + b"\x3e\0", Target("x86_64", 64)),
        (b"\x7fELF\x02\x01" + bytes(12) + b"\xb7\0", Target("aarch64", 64)),
        (b"\x7fELF\x02\x02" + bytes(12) + b"\0\x16", Target("ELF machine 22", 64)),
        (b"\xcf\xfa\xed\xfe\x0c\0\0\x01", Target("aarch64", 64)),
        (b"\xce\xfa\xed\xfe\x07\0\0\0", Target("Mach-O machine 7", 32)),
        (b"MZ" + bytes(58) + b"\x40\0\0\0PE\0\0\x64\x86" + bytes(18) + b"\x0b\x02", Target("x86_64", 64)),
        (b"MZ" + bytes(58) + b"\x40\0\0\0NE\0\0", None),
        (b"\x7fELF\x02\x01", None),
        (b"\x7fELF\x07\x01" + bytes(12) + b"\x3e\0", None),
        (b"#!/bin/sh", None),
        (b"", None),
    ],
)
def test_header_of_each_format_is_read(tmp_path: Path, head: bytes, target: Target | None) -> None:
    path = tmp_path / "library"
    path.write_bytes(head)
    assert read_target(path) == target
