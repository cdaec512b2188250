"""Which HTTP parser a connection gets: httptools, but h11 where the client offers to upgrade.

httptools stops at an upgrade offer and drops the body behind it, and Java's HttpClient makes one (h2c) with every
plain-http request. h11 ignores the offer, as RFC 9110 allows, but costs 8 to 13 microseconds more per streamed token.
"""

import asyncio
import re
from typing import Any, cast

from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from service.open_transport import OpenTransport

MAX_HEAD_BYTES = 65_536
HEAD_TIMEOUT_S = 30.0

_UPGRADE = re.compile(rb"\r\nupgrade[ \t]*:", re.IGNORECASE)


class BoundedHttpTools(HttpToolsProtocol):
    """httptools takes in a head of any length, on a kept connection too; here a longer one ends the connection."""

    _num_head_bytes = 0
    _is_in_head = False

    def on_message_begin(self) -> None:
        self._is_in_head = True
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._is_in_head = False
        super().on_headers_complete()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._num_head_bytes = self._num_head_bytes + len(data) if self._is_in_head else 0
        if self._num_head_bytes > MAX_HEAD_BYTES:
            self.transport.close()


class ChoosingProtocol(asyncio.Protocol):
    """Reads the head of a connection's first request, then hands the connection over for good.

    A client that has not sent the whole head after HEAD_TIMEOUT_S is cut off, however slowly it goes on.
    """

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        self._arguments: dict[str, Any] = {
            "config": config,
            "server_state": server_state,
            "app_state": app_state,
            "_loop": _loop,
        }
        self._connections: set[Any] = server_state.connections
        self._transport: asyncio.Transport | None = None
        self._head = b""
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport), transport
        self._transport = transport
        self._connections.add(self)
        self._timer = asyncio.get_running_loop().call_later(HEAD_TIMEOUT_S, transport.close)

    def connection_lost(self, exc: Exception | None) -> None:
        self._connections.discard(self)
        self._stop_timer()

    def data_received(self, data: bytes) -> None:
        assert self._transport is not None
        self._head += data
        head, end, _ = self._head.partition(b"\r\n\r\n")
        if not end and len(head) <= MAX_HEAD_BYTES:
            return
        # h11 also refuses a head without end, which httptools would take in for ever.
        self._stop_timer()
        kind = BoundedHttpTools if end and not _UPGRADE.search(head) else H11Protocol
        protocol = kind(**self._arguments)
        self._connections.discard(self)
        self._transport.set_protocol(protocol)
        protocol.connection_made(cast(asyncio.Transport, OpenTransport(self._transport)))
        protocol.data_received(self._head)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def eof_received(self) -> None:
        """Let the transport close: nothing was asked."""

    def shutdown(self) -> None:
        """Called by the server on its way out: nobody has asked for anything here."""
        if self._transport is not None:
            self._transport.close()
