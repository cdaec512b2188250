"""`pellucid serve` and its collector: flushed at the end, and never in the way."""

import signal
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import pytest

from tests.support.http_calls import CHAT, chat, post
from tests.support.otlp_receiver import attributes, otlp_receiver, refusing_collector, silent_collector
from tests.support.serve_process import ServeProcess
from tests.support.span_script import PARENT

NUM_REQUESTS = 100
FLUSH_S = 1.0


@contextmanager
def serving(endpoint: str, *flags: str, **environment: str) -> Iterator[ServeProcess]:
    """Yield a tiny server with this collector, "" for none."""
    served = ServeProcess(
        *("--model", "random:tiny", "--threads", "1", *flags),
        environment={"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint, **environment},
    )
    try:
        served.wait_ready()
        yield served
    finally:
        served.close()


def stop(served: ServeProcess) -> float:
    """Stop it and return how long it took."""
    started = time.perf_counter()
    served.process.send_signal(signal.SIGTERM)
    assert served.wait() == 0, served.lines
    return time.perf_counter() - started


def latencies_s(served: ServeProcess) -> list[float]:
    """Return the latency of each of many short requests, one after the other."""
    found = []
    with httpx.Client(base_url=served.url) as client:
        for _ in range(NUM_REQUESTS):
            started = time.perf_counter()
            assert client.post(CHAT, json=chat(max_tokens=1)).status_code == 200
            found.append(time.perf_counter() - started)
    return found


@pytest.mark.slow
def test_spans_and_metrics_of_the_last_request_reach_the_collector_when_the_server_is_told_to_stop() -> None:
    with otlp_receiver() as receiver:
        environment = {
            "OTEL_BSP_SCHEDULE_DELAY": "600000",
            "OTEL_SERVICE_NAME": "my-server",
            "OTEL_RESOURCE_ATTRIBUTES": "deployment.environment.name=test",
        }
        with serving(receiver.endpoint, "--served-model-name", "tiny", **environment) as served:
            post(served.url, CHAT, chat(max_tokens=3), headers={"traceparent": PARENT})
            assert receiver.spans == []
            stop(served)
    spans = {span.name: span for span in receiver.spans if span.trace_id.hex() == PARENT.split("-")[1]}
    assert {"pellucid.queue", "pellucid.prefill", "pellucid.decode", "chat tiny", f"POST {CHAT}"} == set(spans)
    assert attributes(spans["chat tiny"])["gen_ai.usage.output_tokens"] == 3
    assert len(receiver.metrics) == 3
    resource = receiver.resources[0]
    assert (resource["service.name"], resource["deployment.environment.name"]) == ("my-server", "test")


@contextmanager
def no_collector() -> Iterator[str]:
    yield ""


@pytest.mark.alone
@pytest.mark.slow
def test_collector_that_refuses_or_never_answers_changes_no_latency_and_the_exit_is_bounded() -> None:
    medians, exits = {}, {}
    for kind in (no_collector, refusing_collector, silent_collector):
        with kind() as endpoint, serving(endpoint, "--telemetry-flush", str(FLUSH_S)) as served:
            medians[kind.__name__] = statistics.median(latencies_s(served))
            assert httpx.get(served.url + "/stats").json()["tracing"]["exporting"] is bool(endpoint)
            exits[kind.__name__] = stop(served)
            lost = [line for line in served.lines if "did not reach" in line]
            assert len(lost) == bool(endpoint), served.lines
            assert not [line for line in served.lines if "Traceback" in line or "urllib3" in line]
    for kind in ("refusing_collector", "silent_collector"):
        assert medians[kind] < 1.5 * medians["no_collector"] + 0.005, medians
        assert exits[kind] < exits["no_collector"] + FLUSH_S + 2.0, exits
