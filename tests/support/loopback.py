"""Serve an ASGI application on a loopback port in a thread: real sockets, real streaming, real disconnects."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn
from starlette.types import ASGIApp


@contextmanager
def serving(app: ASGIApp, *, port: int = 0) -> Iterator[str]:
    """Yield the base URL of `app`; a port other than 0 is for coming back where one has been before."""
    config = uvicorn.Config(app, host="127.0.0.1", port=port, log_level="warning", timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    bound = config.bind_socket()
    bound.listen()  # connections made before the thread runs wait instead of being refused
    thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{bound.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(10)
