"""Metrics = sums over the event trace = sums over spans = what clients counted, after a mixed load over HTTP."""

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from engine.config import SchedulerConfig
from engine.events import RequestFinished, RequestPreempted, StepFinished
from observability.trace_check import check_trace
from observability.trace_file import TraceReader
from tests.support.mixed_load import Answered, ClientCounts, run_mixed_load
from tests.support.scripted_service import ScriptedCore, emits, serve
from tests.support.serve_process import ServeProcess
from tests.support.trace_sums import TraceSums

MS = 0.001
TIMEOUT_S = 30.0


class Books:
    """Everything a server says about itself after a load, over HTTP."""

    def __init__(self, url: str, trace_file: Path, trace_ids: list[str]) -> None:
        self._client = httpx.Client(base_url=url, timeout=TIMEOUT_S)
        with self._client:
            self._wait(lambda: self._get("/stats")["gauges"]["in_flight"] == 0)
            self._wait(lambda: not self._get("/telemetry/requests")["in_flight"])
            trace_file.write_bytes(self._client.get("/telemetry/kv/trace").content)
            report = check_trace(trace_file)
            assert report.ok, report.to_text()
            with TraceReader(trace_file) as reader:
                self.trace = TraceSums(event for event in reader)  # type: ignore[misc]
            self.requests = self._get("/telemetry/requests?recent=1024")["recent"]
            details = [self._get(f"/telemetry/requests/{row['request_id']}") for row in self.requests]
            self.stamps = [detail["stamps"] for detail in details]
            self.spans = [span for trace_id in trace_ids for span in self._spans(trace_id)]
            self.stats = self._get("/stats")
            lines = self._client.get("/metrics").text.splitlines()
        samples = (line.rsplit(" ", 1) for line in lines if line and line[0] != "#")
        self._metrics = {name.removeprefix("pellucid_"): float(value) for name, value in samples}

    def metric(self, name: str) -> float:
        return self._metrics[name]

    def by_label(self, name: str) -> dict[str, float]:
        """Return the values of a metric with one label, zeros left out."""
        found = {key: value for key, value in self._metrics.items() if key.startswith(name + "{") and value}
        return {key.split('"')[1]: value for key, value in found.items()}

    def http_statuses(self, route: str) -> dict[int, float]:
        """Return responses of a route by status."""
        found = {n: value for n, value in self._metrics.items() if n.startswith("http_requests_total{") and route in n}
        return {int(name.split('status="')[1][:3]): value for name, value in found.items()}

    def spans_named(self, name: str) -> list[dict[str, Any]]:
        return [span for span in self.spans if span["name"] == name]

    def _get(self, path: str) -> Any:
        return self._client.get(path).json()

    def _spans(self, trace_id: str) -> list[dict[str, Any]]:
        self._wait(lambda: self._client.get(f"/telemetry/traces/{trace_id}").status_code == 200)
        spans: list[dict[str, Any]] = self._get(f"/telemetry/traces/{trace_id}")["spans"]
        return spans

    def _wait(self, condition: Callable[[], bool]) -> None:
        pause = threading.Event()
        for _ in range(int(TIMEOUT_S / 0.02)):
            if condition():
                return
            pause.wait(0.02)
        raise AssertionError("it never came to rest")


@contextmanager
def scripted_server() -> Iterator[str]:
    scheduling = SchedulerConfig(block_size=4, num_kv_blocks=44, max_num_seqs=6, max_num_batched_tokens=32)
    text = b"once upon a time there was a stop and then some more words came until the very end of it all "
    with serve(core=ScriptedCore(emits(text * 4), scheduling)) as served:
        yield served.url


@contextmanager
def real_server() -> Iterator[str]:
    flags = ("--model", "random:tiny", "--executor", "torch", "--threads", "1", "--block-size", "4")
    server = ServeProcess(
        *flags, "--num-kv-blocks", "44", "--max-num-seqs", "6", "--max-num-batched-tokens", "32",
        environment={"PELLUCID_MAX_QUEUE": "64"},
    )  # fmt: skip
    try:
        server.wait_ready()
        yield server.url
    finally:
        server.close()


@pytest.mark.parametrize(
    ("server", "stop"), [(scripted_server, "stop"), pytest.param(real_server, "e", marks=pytest.mark.slow)]
)
def test_metrics_trace_spans_and_clients_tell_one_story(server: Any, stop: str, tmp_path: Path) -> None:
    with server() as url:
        clients = run_mixed_load(url, num_calls=100, num_clients=8, seed=3, stop=stop)
        books = Books(url, tmp_path / "trace.jsonl", clients.traces)
    check_counts(books, clients)
    check_times(books)
    check_spans(books, clients)


def check_counts(books: Books, clients: ClientCounts) -> None:
    """No tolerance."""
    trace, metric = books.trace, books.metric
    num_rejected = sum(clients.rejections.values())
    assert metric("requests_received_total") == clients.num_answered + clients.num_left + num_rejected
    assert trace.num_received == clients.num_answered + clients.num_left
    assert books.by_label("requests_rejected_total") == clients.rejections
    assert books.by_label("requests_total") == ends_as_told(trace, clients)
    aborted = trace.ends["abort"]
    assert 0 < aborted <= clients.num_left
    assert sum(trace.ends.values()) == clients.num_answered + clients.num_left
    for call in clients.calls:
        check_call(call, [trace.finished[request_id] for request_id in call.request_ids])
    assert metric("generated_tokens_total") == trace.generated
    in_finished = sum(event.num_output_tokens for event in trace.finished.values())
    assert trace.generated == in_finished + trace.overrun + trace.aborted_tokens
    source = books.by_label("prompt_tokens_total")
    assert source["cached"] == trace.scheduled_cached == metric("prefix_cache_hit_tokens_total") == trace.matched
    assert metric("prefix_cache_queries_tokens_total") == trace.looked_up
    assert books.by_label("prefix_miss_total") == trace.misses
    assert metric("recomputed_tokens_total") == trace.recomputed
    assert metric("preemptions_total") == trace.num[RequestPreempted] > 0
    assert metric("kv_evictions_total") == trace.num_evictions > 0
    assert metric("engine_steps_total") == trace.num[StepFinished]
    assert metric("time_to_first_token_seconds_count") == trace.num_first
    assert metric("inter_token_latency_seconds_count") == trace.num_gaps
    assert metric("request_duration_seconds_count") == metric("unattributed_seconds_count") == sum(trace.ends.values())
    assert metric('events_dropped_total{where="stream"}') == 0
    assert metric('kv_blocks{state="referenced"}') == metric("requests_running") == 0
    assert books.http_statuses("/v1/completions") == clients.num_http


def ends_as_told(trace: TraceSums, clients: ClientCounts) -> Counter[str]:
    """The trace's ends, but `stop` for answers whose stop string came with the last token that was allowed."""
    ends = Counter(trace.ends)
    for call in clients.calls:
        for request_id, told in zip(call.request_ids, call.ends, strict=True):
            said = trace.finished[request_id].finish_reason
            assert told == said or (told, said) == ("stop", "length")
            ends[said] -= 1
            ends[told] += 1
    return ends


def check_call(call: Answered, finished: Sequence[RequestFinished]) -> None:
    """An answer's usage and ends are the engine's, unless it was done before the service found a stop string."""
    assert sum(event.num_prompt_tokens for event in finished) == call.prompt_tokens
    assert sum(event.num_cached_tokens for event in finished) == call.cached_tokens
    num_output_tokens = sum(event.num_output_tokens for event in finished)
    ends = [event.finish_reason for event in finished]
    if (num_output_tokens, ends) != (call.completion_tokens, call.ends):
        assert call.may_be_outrun
        assert ends == ["length"]
        assert call.completion_tokens < num_output_tokens <= call.max_tokens


def check_times(books: Books) -> None:
    """Within a millisecond."""
    trace, metric = books.trace, books.metric
    assert metric("request_queue_seconds_sum") == pytest.approx(trace.queue_s, abs=MS)
    assert metric("request_prefill_seconds_sum") == pytest.approx(trace.prefill_s, abs=MS)
    assert metric("request_decode_seconds_sum") == pytest.approx(trace.decode_s, abs=MS)
    assert metric("inter_token_latency_seconds_sum") == pytest.approx(trace.gaps_s, abs=MS)
    for stage, seconds in trace.stages_s.items():
        assert books.by_label("engine_stage_seconds_total")[stage] == pytest.approx(seconds, abs=MS), stage
    for kind in ("prefill", "decode", "mixed"):
        found = metric(f'step_duration_seconds_sum{{kind="{kind}"}}')
        assert found == pytest.approx(trace.step_s[kind], abs=MS), kind
    ended = [row for row in books.requests if row["state"] != "rejected"]
    assert metric("request_duration_seconds_sum") == pytest.approx(sum(row["e2e_s"] for row in ended), abs=MS)
    firsts = [row["ttft_s"] for row in ended if row["ttft_s"] is not None]
    assert metric("time_to_first_token_seconds_sum") == pytest.approx(sum(firsts), abs=MS)
    attributed = sum(books.by_label("request_attributed_seconds_total").values())
    assert attributed == pytest.approx(metric("request_duration_seconds_sum"), abs=MS)
    residuals = metric("unattributed_seconds_sum") / metric("request_duration_seconds_sum")
    assert residuals < 0.01


def check_spans(books: Books, clients: ClientCounts) -> None:
    generations = [span for span in books.spans if span["name"].startswith("text_completion")]
    assert len(generations) == clients.num_answered + clients.num_left
    produced = sum(span["attributes"].get("gen_ai.usage.output_tokens", 0) for span in generations)
    assert produced == sum(row["num_output_tokens"] for row in books.requests if row["state"] != "rejected")
    for name, metric in (("queue", "request_first_queue"), ("prefill", "request_prefill")):
        seconds = sum(span["duration_s"] for span in books.spans_named(f"pellucid.{name}"))
        assert seconds == pytest.approx(books.metric(f"{metric}_seconds_sum"), abs=MS), name
    seconds = sum(span["duration_s"] for span in books.spans_named("pellucid.decode"))
    after_the_end = sum(_decode_after_the_end(stamps) for stamps in books.stamps)
    assert seconds + after_the_end == pytest.approx(books.metric("request_decode_seconds_sum"), abs=MS)
    duration = sum(span["duration_s"] for span in generations)
    assert duration == pytest.approx(books.metric("request_duration_seconds_sum"), abs=MS)


def _decode_after_the_end(stamps: dict[str, float | None]) -> float:
    """Return for how long the engine decoded on after the answer was out, which no span shows."""
    first, last, end = stamps["first_token_s"], stamps["last_token_s"], stamps["sent_last_s"]
    if first is None or last is None or end is None:
        return 0.0
    return max(0.0, last - max(first, end))
