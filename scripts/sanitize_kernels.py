#!/usr/bin/env python3
"""Run the native kernels' tests over a library built with sanitizers: `sanitize_kernels.py address` or `thread`.

`address` is AddressSanitizer with UndefinedBehaviorSanitizer over every kernel on odd shapes, attention in every
precision of the cache and the draw included; `thread` is ThreadSanitizer over decoders of several threads. The
sanitizer's runtime is loaded before the interpreter, which isn't built with it, so leaks of the interpreter aren't
looked for. A finding ends the run with a report and a non-zero code.
Needs GCC, and minutes.
"""

import argparse
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# -O1 keeps lines in reports; some unrolling that is asked for doesn't happen at it, which is only a warning.
COMMON_FLAGS = "-O1 -g -fno-omit-frame-pointer -Wno-error"
SANITIZERS = {
    "address": (
        f"{COMMON_FLAGS} -fsanitize=address,undefined -fno-sanitize-recover=all",
        ("libasan.so", "libubsan.so"),
        ("tests/engine/kernels/test_native_kernels.py", "tests/engine/sampling/test_native_draw.py"),
    ),
    "thread": (
        f"{COMMON_FLAGS} -fsanitize=thread",
        ("libtsan.so",),
        ("tests/equivalence/test_native_executor.py", "-k", "one_thread_equals_several"),
    ),
}


def runtime_path(name: str) -> str:
    """Return where GCC keeps a sanitizer's runtime."""
    found = subprocess.run(["g++", f"-print-file-name={name}"], capture_output=True, text=True, check=True)
    return found.stdout.strip()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sanitizer", choices=SANITIZERS)
    parser.epilog = "Further arguments go to pytest, instead of the sanitizer's own choice of tests."
    options, pytest_options = parser.parse_known_args()
    flags, runtimes, tests = SANITIZERS[options.sanitizer]
    sys.path.insert(0, str(ROOT))
    from engine.kernels.build import build_library

    build_library(
        print, extra_flags=tuple(flags.split())
    )  # without the preloaded runtime, which would slow the compiler
    environment = {
        **os.environ,
        "CXX": "g++",
        "LD_PRELOAD": ":".join(runtime_path(name) for name in runtimes),
        "ASAN_OPTIONS": "detect_leaks=0:halt_on_error=1",
        "TSAN_OPTIONS": "halt_on_error=1:ignore_noninstrumented_modules=1",
        "PELLUCID_TEST_KERNEL_FLAGS": flags,
    }
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:faulthandler", "--timeout=0"]
    return subprocess.run([*command, *(pytest_options or tests)], cwd=ROOT, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
