"""The data lines of a server-sent event stream, however the bytes are chopped."""


class SseReader:
    """Collects bytes and returns the payloads of complete `data:` lines; comments and other fields are dropped.

    Enough for completion streams, whose events have one data line each.
    """

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[bytes]:
        """Take the next bytes and return the payloads that are complete now."""
        lines = (self._rest + data).split(b"\n")
        self._rest = lines.pop()
        return [line[5:].strip() for line in lines if line.startswith(b"data:")]
