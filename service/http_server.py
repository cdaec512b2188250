"""uvicorn, run from here: our sockets, our signals, our way out."""

import contextlib
import socket
from collections.abc import Iterator

import uvicorn
from starlette.types import ASGIApp

from service.http_protocol import ChoosingProtocol

KEEP_ALIVE_S = 65
FLUSH_S = 3


class HttpServer(uvicorn.Server):
    """A uvicorn server that leaves signals alone: service/main.py drains before anything is closed."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def make_server(app: ASGIApp) -> HttpServer:
    """Return a server for `serve(sockets=[...])`; stop it by setting `should_exit`."""
    return HttpServer(
        uvicorn.Config(
            app,
            http=ChoosingProtocol,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_keep_alive=KEEP_ALIVE_S,
            timeout_graceful_shutdown=FLUSH_S,
            backlog=2048,
        )
    )


def listening_socket(host: str, port: int) -> socket.socket:
    """Bind and listen; raises OSError. Early, so that a busy port is known before a model is loaded."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.create_server((host, port), family=family, backlog=2048)
    # Connections inherit it. asyncio sets it only on sockets that name their protocol, which this one doesn't; without
    # it a body that follows its head, or a token that follows a token, waits for the client's delayed ACK: 40 ms.
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock
