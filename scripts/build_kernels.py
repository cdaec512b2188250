#!/usr/bin/env python3
"""Build the native CPU kernels, or say in one line why not."""

import sys
import time
from dataclasses import dataclass

from bootstrap import reexec_inside


@dataclass(frozen=True)
class KernelBuild:
    """How it went.

    Attributes:
        state: `ready`; `no compiler` (the torch executor serves instead); `failed`.
        message: one line, or the compiler's output when it failed.
    """

    state: str
    message: str


def build_kernels(*, quiet: bool = False) -> KernelBuild:
    """Build unless it was done already; progress goes to stdout. Needs the project's environment."""
    from engine.kernels.build import BuildError, build_library, find_library
    from engine.kernels.toolchain import find_toolchain

    def say(text: str) -> None:
        if not quiet:
            print(f"[kernels] {text}", flush=True)

    started = time.monotonic()
    if find_toolchain() is None:
        if find_library() is not None:
            return KernelBuild("ready", "built earlier")
        return KernelBuild(
            "no compiler", "no C++ compiler found: serving with the torch executor (install g++ for more)"
        )
    try:
        library = build_library(say)
    except BuildError as error:
        return KernelBuild("failed", str(error))
    return KernelBuild("ready", f"{library.name}, {time.monotonic() - started:.0f} s")


def main() -> int:
    reexec_inside()
    build = build_kernels()
    print(f"[kernels] {build.state}: {build.message}", file=sys.stderr if build.state == "failed" else sys.stdout)
    return {"ready": 0, "no compiler": 1, "failed": 1}[build.state]


if __name__ == "__main__":
    sys.exit(main())
