"""The clients as commands: built if they need it, skipped where their tools are missing (a failure under --strict)."""

import functools
import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CLIENTS = ROOT / "clients"
# Workers of pytest-xdist don't compile over what another one is running.
BUILD = Path("build", os.environ.get("PYTEST_XDIST_WORKER", ""))
BUILD_TIMEOUT_S = 300.0
JAVA = ("java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto")


def require(tool: str) -> None:
    """Skip the test without `tool`, or fail it where every tool must be there."""
    if shutil.which(tool) is None:
        if os.environ.get("PELLUCID_STRICT_TOOLS") == "1":
            pytest.fail(f"{tool} is missing; a client can't be tested")
        pytest.skip(f"{tool} is missing")


def build(*command: str) -> None:
    """Run a compiler, which has to be content."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=BUILD_TIMEOUT_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout + done.stderr == "", "the compiler has something to say"


@functools.cache
def c_build() -> Path:
    """Build the C client, plain and sanitized, and return the directory."""
    require("gcc")
    require("make")
    build("make", "-s", "-C", str(CLIENTS / "c"), "CC=gcc", f"BUILD={BUILD}", "all", "sanitized")
    return CLIENTS / "c" / BUILD


@functools.cache
def java_build() -> Path:
    """Build the Java client and its worker and return the directory of the classes."""
    require("javac")
    require("java")
    classes = CLIENTS / "java" / BUILD
    here = Path(__file__).resolve().parent
    sources = [*(CLIENTS / "java" / "src").rglob("*.java"), *(here / "java").rglob("*.java")]
    build("javac", "-Xlint:all", "-Werror", "--release", "17", "-d", str(classes), *sorted(map(str, sources)))
    return classes


@functools.cache
def csharp_build() -> Path:
    """Build the C# client and its worker with Mono's compiler and return the directory."""
    require("mcs")
    folder = CLIENTS / "csharp" / BUILD
    folder.mkdir(parents=True, exist_ok=True)
    here = Path(__file__).resolve().parent
    mcs = ("mcs", "-langversion:7.2", "-warn:4", "-warnaserror", "-r:System.Net.Http.dll")
    sources = sorted(map(str, (CLIENTS / "csharp" / "src").glob("*.cs")))
    build(*mcs, f"-out:{folder}/pellucid-client.exe", *sources)
    worker = sorted(map(str, (here / "csharp").glob("*.cs")))
    build(*mcs, f"-out:{folder}/worker.exe", "-main:Pellucid.Tests.Worker", *sources, *worker)
    for name in ("pellucid-client", "worker"):
        (folder / f"{name}.runtimeconfig.json").write_text(
            '{"runtimeOptions":{"framework":{"name":"Microsoft.NETCore.App","version":"8.0.0"},"rollForward":"Major",'
            '"configProperties":{"System.Globalization.Invariant":true}}}'
        )
    return folder


def csharp_runtime(language: str) -> str:
    """Return what runs C# programs: Mono, or .NET where it is installed."""
    runtime = "mono" if language == "csharp" else "dotnet"
    require(runtime)
    return runtime


def command(language: str) -> list[str]:
    """Return what starts a client."""
    if language == "c":
        return [str(c_build() / "sanitized" / "pellucid-client")]
    if language == "javascript":
        require("node")
        return ["node", "--no-warnings", str(CLIENTS / "javascript" / "main.mjs")]
    if language == "java":
        return [*JAVA, "-cp", str(java_build()), "pellucid.Main"]
    return [csharp_runtime(language), str(csharp_build() / "pellucid-client.exe")]


def worker_command(language: str) -> list[str]:
    """Return what starts the worker of a client whose processes are slow to start."""
    if language == "java":
        return [*JAVA, "-cp", str(java_build()), "pellucid.Worker"]
    return [csharp_runtime(language), str(csharp_build() / "worker.exe")]
