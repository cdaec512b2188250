"""The kernel laboratory behind `GET /kernels`: measured in a process of its own when first asked for, then remembered.

idle ── ask ──> measuring ──> ready          refresh while ready or failed: measuring again, the last report is kept
                    └──────> failed          refresh while measuring: the measurement under way is the answer

The process runs at the lowest priority, one thread, small samples, and compiles nothing: serving goes first, and so the
times are those of a machine in use, which the report's conditions say.
"""

import asyncio
from dataclasses import dataclass
from typing import Literal

import msgspec

from engine.kernels.lab.process import command, parse_line
from engine.kernels.lab.report import Report

NICENESS = 19
TIMEOUT_S = 120.0
_MAX_LINE_BYTES = 4 << 20

State = Literal["measuring", "ready", "failed"]


@dataclass(frozen=True, slots=True)
class LabStatus:
    """Where the laboratory stands.

    Attributes:
        progress: what is being done, in a few words, while measuring.
        reason: why it failed; "" otherwise.
        report: the last one; None before the first.
    """

    state: State
    progress: str = ""
    reason: str = ""
    report: Report | None = None


class KernelLab:
    """Measures at most once at a time. Used on one event loop; leaving it as a context ends the process.

    Args:
        asked: the command line of the measuring process.
    """

    def __init__(self, asked: list[str] | None = None) -> None:
        self._asked = asked or command(quick=True, build=False, niceness=NICENESS)
        self._status: LabStatus | None = None
        self._measuring: asyncio.Task[None] | None = None

    async def __aenter__(self) -> "KernelLab":
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._measuring is not None:
            self._measuring.cancel()
            await asyncio.wait((self._measuring,))

    def ask(self, *, refresh: bool) -> LabStatus:
        """Return where it stands, starting a measurement if there was none or `refresh` asks for another."""
        is_measuring = self._measuring is not None and not self._measuring.done()
        if self._status is None or (refresh and not is_measuring):
            report = self._status.report if self._status else None
            self._status = LabStatus("measuring", progress="starting", report=report)
            self._measuring = asyncio.create_task(self._measure(report))
        return self._status

    async def _measure(self, last: Report | None) -> None:
        try:
            async with asyncio.timeout(TIMEOUT_S):
                self._status = await self._run(last)
        except TimeoutError:
            self._status = LabStatus("failed", reason=f"no report within {TIMEOUT_S:g} s", report=last)
        except (OSError, ValueError, msgspec.DecodeError) as error:
            self._status = LabStatus("failed", reason=f"the measuring process: {error}", report=last)

    async def _run(self, last: Report | None) -> LabStatus:
        """Read the process to its end; it is killed when that doesn't come."""
        process = await asyncio.create_subprocess_exec(
            *self._asked,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            limit=_MAX_LINE_BYTES,
            start_new_session=True,  # a terminal's Ctrl-C goes to the service
        )
        assert process.stdout is not None
        status = LabStatus("failed", reason="the measuring process ended without a report", report=last)
        try:
            while line := await process.stdout.readline():
                message = parse_line(line)
                if message.progress:
                    self._status = LabStatus("measuring", progress=message.progress, report=last)
                elif message.report is not None:
                    status = LabStatus("ready", report=message.report)
                else:
                    status = LabStatus("failed", reason=message.error, report=last)
            await process.wait()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        return status
