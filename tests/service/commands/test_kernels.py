"""`pellucid kernels` as a user runs it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from engine.kernels.registry import BACKENDS, KERNELS
from tests.support.native import native_library

ROOT = Path(__file__).resolve().parents[3]


def pellucid(*arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "service.cli", "kernels", *arguments],
        cwd=ROOT, env={**os.environ, **environment}, capture_output=True, text=True, check=False,
    )  # fmt: skip


def test_kernels_json_is_one_object_and_nothing_else() -> None:
    native_library()
    done = pellucid("--json", "--quick")
    assert (done.returncode, done.stderr) == (0, "")
    report = json.loads(done.stdout)
    assert [backend["name"] for backend in report["backends"]] == list(BACKENDS)
    states = {backend["name"]: backend["state"] for backend in report["backends"]}
    assert {states[name] for name in ("numpy", "torch", "ctypes", "pybind11", "nanobind")} == {"available"}
    assert all(check["passed"] for check in report["checks"])
    timed = {(each["kernel"], each["phase"]) for each in report["timings"] if each["backend"] == "nanobind"}
    assert timed == {(kernel, phase) for kernel in KERNELS for phase in ("decode", "prefill")}
    costs = {(each["binding"], each["arguments"], each["interpreter_lock"]) for each in report["call_costs"]}
    assert len(costs) == 2 + 3 * 3 * 2
    assert report["conditions"]["num_threads"] == 1


def test_kernels_without_compiler_or_library_names_the_reason(tmp_path: Path) -> None:
    done = pellucid("--quick", XDG_CACHE_HOME=str(tmp_path), CXX="no-such-compiler", COLUMNS="200")
    assert done.returncode == 0, done.stderr
    assert "no C++ compiler was found" in done.stdout


def test_kernels_doctor_names_everything(tmp_path: Path) -> None:
    native_library()
    done = pellucid("--doctor", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    diagnosis = json.loads(done.stdout)
    found = {finding["subject"]: finding["found"] for finding in diagnosis["findings"]}
    assert found["C++ compiler"]
    assert {"Python.h", "pybind11", "nanobind", "CUDA device", "triton", "instruction set portable"} <= set(found)
    assert [artefact["name"] for artefact in diagnosis["artefacts"]] == ["library", "pybind11", "nanobind"]
    assert diagnosis["artefacts"][0]["state"] == "built"


def test_kernels_doctor_without_compiler_fails_and_says_what_helps(tmp_path: Path) -> None:
    done = pellucid("--doctor", XDG_CACHE_HOME=str(tmp_path), CXX="no-such-compiler", COLUMNS="200")
    assert (done.returncode, done.stderr) == (1, "")
    assert "install g++ or clang++" in done.stdout
    assert "can't be built" in done.stdout


@pytest.mark.parametrize("arguments", [("--instruction-set", "sse9"), ("--unknown",)])
def test_kernels_bad_usage_is_two(arguments: tuple[str, ...]) -> None:
    assert pellucid(*arguments).returncode == 2
