"""A real OTLP receiver on loopback: takes http/protobuf, decodes it with the protocol's own messages, keeps it."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

TIMEOUT_S = 20.0


class OtlpReceiver:
    """What arrived.

    Attributes:
        endpoint: base URL, for OTEL_EXPORTER_OTLP_ENDPOINT.
        spans: decoded spans, in the order in which they came; `resources` are theirs.
        metrics: decoded metrics by name, the newest of each.
        headers: of every request.
        status: what to answer.
    """

    def __init__(self, port: int) -> None:
        self.endpoint = f"http://127.0.0.1:{port}"
        self.spans: list[Any] = []
        self.resources: list[dict[str, Any]] = []
        self.scopes: list[Any] = []
        self.metrics: dict[str, Any] = {}
        self.headers: list[dict[str, str]] = []
        self.status = 200
        self._changed = threading.Condition()

    def take(self, path: str, headers: dict[str, str], body: bytes) -> None:
        with self._changed:
            self.headers.append(headers)
            if path == "/v1/traces" and self.status == 200:
                for group in ExportTraceServiceRequest.FromString(body).resource_spans:
                    for scope in group.scope_spans:
                        self.spans += scope.spans
                        self.scopes += [scope] * len(scope.spans)
                        self.resources += [attributes(group.resource)] * len(scope.spans)
            elif path == "/v1/metrics" and self.status == 200:
                for batch in ExportMetricsServiceRequest.FromString(body).resource_metrics:
                    for scoped in batch.scope_metrics:
                        self.metrics.update({metric.name: metric for metric in scoped.metrics})
            self._changed.notify_all()

    def wait_for_spans(self, num_spans: int) -> list[Any]:
        """Return the spans once there are so many."""
        with self._changed:
            arrived = self._changed.wait_for(lambda: len(self.spans) >= num_spans, TIMEOUT_S)
            assert arrived, f"{len(self.spans)} of {num_spans} spans came"
            return list(self.spans)

    def wait_for_requests(self, num_requests: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.headers) >= num_requests, TIMEOUT_S)


def attributes(holder: Any) -> dict[str, Any]:
    """Return the attributes of a decoded span, event, resource or data point as plain values."""
    return {each.key: _value(each.value) for each in holder.attributes}


def _value(value: Any) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_value(item) for item in value.array_value.values]
    return getattr(value, kind)


@contextmanager
def otlp_receiver() -> Iterator[OtlpReceiver]:
    """Yield a running receiver."""
    box: list[OtlpReceiver] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            receiver = box[0]
            receiver.take(self.path, {name.lower(): value for name, value in self.headers.items()}, body)
            self.send_response(receiver.status)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            """Be quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    box.append(OtlpReceiver(server.server_address[1]))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield box[0]
    finally:
        server.shutdown()
        thread.join(TIMEOUT_S)
        server.server_close()


@contextmanager
def silent_collector() -> Iterator[str]:
    """Yield the URL of a collector that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0), backlog=128) as sock:
        yield f"http://127.0.0.1:{sock.getsockname()[1]}"


@contextmanager
def refusing_collector() -> Iterator[str]:
    """Yield the URL of a port on which nobody listens: it is bound, so nobody else gets it."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{sock.getsockname()[1]}"
