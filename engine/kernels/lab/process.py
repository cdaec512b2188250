"""The laboratory in a process of its own: `python -m engine.kernels.lab.process`, JSON Lines on stdout.

A process, because the number of threads of the compute libraries is settled when they are imported, and because a
kernel that crashes must take nothing else along. Lines `{"progress": TEXT}` come first, then `{"report": ...}` or, for
a setting that can't be used, `{"error": TEXT}`.
"""

import argparse
import os
import sys

import msgspec

from engine.errors import ConfigError
from engine.kernels.lab.report import Report
from engine.process_environment import set_compute_threads, wait_without_spinning


class Message(msgspec.Struct, frozen=True, omit_defaults=True):
    """One line of the process: exactly one field is set."""

    progress: str = ""
    report: Report | None = None
    error: str = ""


def command(*, quick: bool, build: bool, instruction_set: str = "auto", niceness: int = 0) -> list[str]:
    """Return the command line of the process."""
    options = ["--quick"] * quick + ["--no-build"] * (not build)
    return [
        sys.executable, "-m", "engine.kernels.lab.process", *options, "--instruction-set", instruction_set,
        "--nice", str(niceness),
    ]  # fmt: skip


def parse_line(line: bytes) -> Message:
    """Return what a line says; raises msgspec.DecodeError for one that isn't the process's."""
    return msgspec.json.decode(line, type=Message)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m engine.kernels.lab.process", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer and shorter samples")
    parser.add_argument("--no-build", action="store_true", help="use what is built, compile nothing")
    parser.add_argument("--instruction-set", default="auto", help="of the native kernels")
    parser.add_argument("--nice", type=int, default=0, help="give way to other processes by so much")
    args = parser.parse_args(arguments)
    if args.nice:
        os.nice(args.nice)
    set_compute_threads(1)
    wait_without_spinning()
    # What these import reads its number of threads from the environment, once.
    from engine.clock import SystemClock
    from engine.kernels.lab.laboratory import run_laboratory
    from engine.kernels.lab.timing import QUICK, THOROUGH

    try:
        report = run_laboratory(
            lambda text: _tell(Message(progress=text)),
            effort=QUICK if args.quick else THOROUGH,
            build=not args.no_build,
            instruction_set=args.instruction_set,
            clock=SystemClock(),
        )
    except ConfigError as error:
        _tell(Message(error=error.message))
        return 1
    _tell(Message(report=report))
    return 0


def _tell(message: Message) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(message) + b"\n")
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
