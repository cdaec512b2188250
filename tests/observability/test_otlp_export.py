"""What leaves over OTLP reaches a real receiver, and a collector that is down or silent holds up nobody."""

import logging
import threading
import time
from collections.abc import Iterator, Sequence

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from engine.clock import ManualClock
from observability.otlp_settings import OtlpSettings, otlp_settings
from observability.span_queue import SpanQueue
from observability.tracing import Tracing
from tests.support.otlp_receiver import OtlpReceiver, attributes, otlp_receiver, refusing_collector, silent_collector
from tests.support.span_script import PARENT, ROUTE, SpanScript

TIMEOUT_S = 20.0


@pytest.fixture
def receiver() -> Iterator[OtlpReceiver]:
    with otlp_receiver() as receiver:
        yield receiver


@pytest.fixture(autouse=True)
def _quiet_library(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, logger="opentelemetry")  # as `pellucid serve` has it


def settings(endpoint: str, **more: str) -> OtlpSettings:
    environment = {"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint, "OTEL_BSP_SCHEDULE_DELAY": "10", **more}
    return otlp_settings(environment)


def script_to(endpoint: str, **more: str) -> SpanScript:
    return SpanScript(tracing=Tracing(ManualClock(100.0), version="1.2.3", otlp=settings(endpoint, **more)))


def generate(script: SpanScript, request_id: str, *, traceparent: str = "", fails: bool = False) -> str:
    start = script.t
    trace = script.begin(request_id, traceparent=traceparent)
    script.arrive(request_id)
    script.at(start + 0.25).schedule(request_id)
    for i in range(3):
        script.at(start + 0.5 + i / 4).tokens(request_id, total=i + 1)
    if fails:
        script.fail(request_id)
    else:
        script.finish(request_id)
    script.exchange(trace, start=start)
    return trace.trace_id


def test_spans_arrive_with_their_structure_resource_and_scope(receiver: OtlpReceiver) -> None:
    script = script_to(receiver.endpoint, OTEL_EXPORTER_OTLP_HEADERS="api-key=secret%20one,x=2")
    trace_id = generate(script, "a", traceparent=PARENT)
    spans = {span.name: span for span in receiver.wait_for_spans(5)}
    script.tracing.close(TIMEOUT_S)
    server, chat = spans[f"POST {ROUTE}"], spans["chat smol"]
    assert set(spans) == {server.name, chat.name, "pellucid.queue", "pellucid.prefill", "pellucid.decode"}
    assert {span.trace_id.hex() for span in spans.values()} == {trace_id}
    assert server.parent_span_id.hex() == PARENT.split("-")[2]
    assert chat.parent_span_id == server.span_id
    assert all(spans[name].parent_span_id == chat.span_id for name in spans if name.startswith("pellucid."))
    assert attributes(chat)["gen_ai.usage.output_tokens"] == 3
    assert (server.start_time_unix_nano, server.end_time_unix_nano) == (100_000_000_000, 101_000_000_000)
    assert receiver.resources[0]["service.name"] == "pellucid"
    assert receiver.resources[0]["service.version"] == "1.2.3"
    assert receiver.scopes[0].scope.name == "pellucid"
    assert (receiver.headers[0]["api-key"], receiver.headers[0]["x"]) == ("secret one", "2")
    assert script.tracing.stats().spans_exported == 5


def test_spans_of_the_last_request_arrive_when_the_server_stops(receiver: OtlpReceiver) -> None:
    script = script_to(receiver.endpoint, OTEL_BSP_SCHEDULE_DELAY="60000")
    generate(script, "a")
    assert receiver.spans == []
    script.tracing.close(TIMEOUT_S)
    assert len(receiver.spans) == 5
    assert set(script.tracing.stats().spans_dropped.values()) == {0}


def test_three_server_metrics_arrive_with_the_conventions_bounds(receiver: OtlpReceiver) -> None:
    script = script_to(receiver.endpoint)
    generate(script, "a")
    generate(script, "b", traceparent=PARENT[:-1] + "0")  # not sampled, but counted
    generate(script, "c", fails=True)
    script.tracing.close(TIMEOUT_S)
    assert set(receiver.metrics) == {
        "gen_ai.server.request.duration",
        "gen_ai.server.time_per_output_token",
        "gen_ai.server.time_to_first_token",
    }
    points = {name: metric.histogram.data_points for name, metric in receiver.metrics.items()}
    finished, failed = sorted(points["gen_ai.server.request.duration"], key=lambda p: "error.type" in attributes(p))
    assert (finished.count, finished.sum, failed.count) == (2, pytest.approx(2.0), 1)
    assert attributes(failed)["error.type"] == "internal_error"
    assert attributes(finished) == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "pellucid",
        "gen_ai.request.model": "smol",
        "gen_ai.response.model": "smol",
    }
    (first,) = points["gen_ai.server.time_to_first_token"]
    (per_token,) = points["gen_ai.server.time_per_output_token"]
    assert (first.count, first.sum) == (2, pytest.approx(1.0))
    assert (per_token.count, per_token.sum) == (2, pytest.approx(0.5))
    assert list(first.explicit_bounds)[:3] == [0.001, 0.005, 0.01]
    assert list(per_token.explicit_bounds)[-1] == 2.5
    assert list(finished.explicit_bounds)[-1] == 81.92
    assert receiver.metrics["gen_ai.server.request.duration"].unit == "s"


@pytest.mark.parametrize("status", [302, 307, 400])
def test_collector_that_rejects_spans_is_said_once_and_each_span_counted(
    receiver: OtlpReceiver, caplog: pytest.LogCaptureFixture, status: int
) -> None:
    receiver.status = status
    script = script_to(receiver.endpoint, OTEL_METRICS_EXPORTER="none")
    with caplog.at_level(logging.INFO, logger="pellucid.tracing"):
        for i in range(3):
            generate(script, f"r{i}")
            receiver.wait_for_requests(i + 1)
        receiver.status = 200
        generate(script, "good")
        script.tracing.close(TIMEOUT_S)
    dropped = script.tracing.stats().spans_dropped
    assert dropped["export_failed"] + script.tracing.stats().spans_exported == 20
    assert dropped["export_failed"] >= 5
    said = [record.getMessage() for record in caplog.records]
    assert [("don't reach" in line, "again" in line) for line in said] == [(True, False), (False, True)]
    script.tracing.refresh(script.metrics)
    exposed = script.metrics.render()[0].decode()
    assert f'pellucid_spans_dropped_total{{reason="export_failed"}} {dropped["export_failed"]:.1f}' in exposed


@pytest.mark.alone
@pytest.mark.parametrize("collector", [refusing_collector, silent_collector])
def test_collector_that_is_down_or_silent_costs_no_time_and_the_end_is_bounded(collector) -> None:  # type: ignore[no-untyped-def]
    with collector() as endpoint:
        script = script_to(endpoint, OTEL_BSP_MAX_QUEUE_SIZE="200", OTEL_EXPORTER_OTLP_TIMEOUT="30000")
        started = time.perf_counter()
        for i in range(100):
            generate(script, f"r{i}")
        took = time.perf_counter() - started
        closing = time.perf_counter()
        script.tracing.close(0.5)
        closed = time.perf_counter() - closing
    stats = script.tracing.stats()
    assert took / 100 < 0.02
    assert closed < 2.0
    assert stats.spans == 500
    assert (stats.spans_exported, sum(stats.spans_dropped.values())) == (0, 500)
    assert stats.spans_dropped["queue_full"] > 0
    assert stats.spans_dropped["shutdown"] > 0


class HeldExporter(SpanExporter):
    """Holds each batch until it is let go."""

    def __init__(self) -> None:
        self.batches: list[int] = []
        self.entered = threading.Event()
        self.let_go = threading.Event()

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.batches.append(len(spans))
        self.entered.set()
        assert self.let_go.wait(TIMEOUT_S)
        return SpanExportResult.SUCCESS

    def shutdown(self) -> None:
        self.let_go.set()


def held_queue() -> tuple[SpanQueue, HeldExporter]:
    exporter = HeldExporter()
    return SpanQueue(exporter, endpoint="held", max_spans=10, max_batch=4, delay_s=0.001), exporter


def test_queue_holds_its_bound_and_sends_whole_batches() -> None:
    queue, exporter = held_queue()
    span = ReadableSpan("a")
    queue.add([span])
    assert exporter.entered.wait(TIMEOUT_S)
    queue.add([span] * 14)
    assert queue.dropped() == {"queue_full": 4, "export_failed": 0, "shutdown": 0}
    exporter.let_go.set()
    queue.close(TIMEOUT_S)
    assert exporter.batches == [1, 4, 4, 2]
    assert queue.num_exported == 11


def test_queue_that_is_closed_during_an_export_counts_every_span_once() -> None:
    queue, exporter = held_queue()
    span = ReadableSpan("a")
    queue.add([span] * 2)
    assert exporter.entered.wait(TIMEOUT_S)
    queue.add([span] * 3)
    queue.close(0.01)
    queue.add([span])
    num_exported = queue.num_exported
    assert num_exported + sum(queue.dropped().values()) == 6
    assert queue.dropped()["shutdown"] == 6 - num_exported
