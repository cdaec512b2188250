"""A connection's transport that drops what is written once the connection is lost.

asyncio tells a protocol of a lost connection one turn of its loop later. Where the service is behind, one turn brings a
stream several writes, and asyncio logs a warning for each that follows the fifth.
"""

import asyncio
from typing import Any


class OpenTransport:
    """Passes everything on to the transport but writes after its end."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport

    def write(self, data: bytes) -> None:
        if not self._transport.is_closing():
            self._transport.write(data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)
