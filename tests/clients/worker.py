"""A client in one process for many tests, for languages whose processes are slow to start.

The worker reads a line and answers a line; words are separated by spaces, texts are base64 after a dot:

    run .ARGUMENT ... = .NAME .VALUE ...         the program with these arguments and this environment
    once STATUS .HEADERS .BODY whole|lost        `chat-stream` of a recording
    cut STATUS .HEADERS .BODY whole|lost         ... whole, in single bytes and in two at every cut
    lose STATUS .HEADERS .BODY lost              ... lost after each byte: `<bytes> <exit code>` where the code changes

and the answer is `CODE .STDOUT .STDERR`; `cut` gives -1, and which cut in stdout, when a way gives something else.
"""

import base64
import subprocess
import threading
from collections.abc import Iterable, Mapping

from tests.clients.runs import Run

TIMEOUT_S = 60.0


class Worker:
    """Started at once; close it."""

    def __init__(self, command: list[str]) -> None:
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def run(self, arguments: Iterable[str], environment: Mapping[str, str]) -> Run:
        """Run a program of the client."""
        variables = [_coded(text.encode()) for pair in environment.items() for text in pair]
        return self.ask("run", *(_coded(argument.encode()) for argument in arguments), "=", *variables)

    def replay(self, verb: str, status: int, headers: str, body: bytes, *, is_whole: bool) -> Run:
        """Read a recording in every way of `verb`, "once", "cut" or "lose"."""
        return self.ask(verb, str(status), _coded(headers.encode()), _coded(body), "whole" if is_whole else "lost")

    def ask(self, *words: str) -> Run:
        """Ask and wait for the answer."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        watchdog = threading.Timer(TIMEOUT_S, self._process.kill)
        watchdog.start()
        try:
            self._process.stdin.write(" ".join(words) + "\n")
            self._process.stdin.flush()
            answer = self._process.stdout.readline()
        finally:
            watchdog.cancel()
        assert answer, "the worker is gone"
        code, stdout, stderr = answer.split()
        return Run(int(code), _text(stdout), _text(stderr))

    def close(self) -> None:
        self._process.communicate(timeout=TIMEOUT_S)


def _coded(data: bytes) -> str:
    return "." + base64.b64encode(data).decode()


def _text(word: str) -> str:
    return base64.b64decode(word[1:]).decode()
