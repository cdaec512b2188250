"""The listening socket."""

import socket

from service.http_server import listening_socket


def test_accepted_connection_sends_small_writes_at_once() -> None:
    with listening_socket("127.0.0.1", 0) as listening, socket.create_connection(listening.getsockname()):
        connection, _ = listening.accept()
        with connection:
            assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
