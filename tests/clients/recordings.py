"""The recorded answers of clients/testdata and what every client makes of them."""

import dataclasses
import json
from dataclasses import dataclass

from tests.clients.builds import CLIENTS
from tests.clients.runs import Run

TESTDATA = CLIENTS / "testdata"
TRACE_ID = "0123456789abcdef0123456789abcdef"
EXPECTED = {
    name: Run(entry["exit"], entry["stdout"], entry["stderr"])
    for name, entry in json.loads((TESTDATA / "expected.json").read_text()).items()
}
LIBRARY_REFUSES = ("not_http", "bad_chunk_size")


def recording(name: str) -> bytes:
    """Return the bytes of one recorded answer, head and body."""
    return (TESTDATA / f"{name}.http").read_bytes()


def allowed(language: str, name: str) -> tuple[Run, ...]:
    """Return what a client may make of a recording: one thing, but for the words of an error of broken HTTP.

    Mono's HttpClient has one exception for a chunk that it can't read and for a connection that ended. That of .NET may
    wait for more of what is no HTTP, until the connection ends. All of them have the same stdout and exit code.
    """
    expected = EXPECTED[name]
    if name == "bad_chunk_size" and language == "csharp":
        return (dataclasses.replace(expected, stderr="error: the stream ended before [DONE]\n"),)
    if name == "not_http" and language == "dotnet":
        ended = "error: the connection ended before the answer was complete\n"
        return expected, dataclasses.replace(expected, stderr=ended)
    return (expected,)


@dataclass(frozen=True)
class Parsed:
    """A recorded answer as an HTTP library gives it.

    Attributes:
        headers: a line each, names in lower case, no space after the colon.
        is_whole: whether the body ends as its head says, or the connection was lost.
    """

    status: int
    headers: str
    body: bytes
    is_whole: bool


def parsed(name: str) -> Parsed:
    """Take the HTTP off a recording."""
    head, _, rest = recording(name).partition(b"\r\n\r\n")
    status_line, *lines = head.decode().split("\r\n")
    pairs = [(key.lower(), value.strip()) for key, _, value in (line.partition(":") for line in lines)]
    headers = "\n".join(f"{key}:{value}" for key, value in pairs)
    is_whole = True
    if any(key == "transfer-encoding" for key, _ in pairs):
        rest, is_whole = _join_chunks(rest)
    return Parsed(int(status_line.split(" ")[1]), headers, rest, is_whole)


def _join_chunks(data: bytes) -> tuple[bytes, bool]:
    body = b""
    while data:
        line, _, data = data.partition(b"\r\n")
        size = int(line.partition(b";")[0], 16)
        if size == 0:
            return body, True
        body, data = body + data[:size], data[size + 2 :]
    return body, False
