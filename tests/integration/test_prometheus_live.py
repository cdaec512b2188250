"""A real Prometheus over a real server under load: every query and rule of ours returns data, exemplars lead to traces,
and a killed engine raises its alerts."""

import os
import re
import shutil
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from observability.grafana.panels import ROWS
from tests.support.http_calls import CHAT, chat, post
from tests.support.prometheus_process import Prometheus
from tests.support.promql import rules, selectors
from tests.support.serve_process import ServeProcess, engine_pid, engine_pids

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("prometheus") is None, reason="prometheus is not installed"),
]
RATE_WINDOW = "20s"
TIMEOUT_S = 60.0
PROMPT = "Tell me about the sea. " * 8


@pytest.fixture(scope="module")
def served() -> Iterator[ServeProcess]:
    flags = ("--model", "random:tiny", "--threads", "1", "--max-num-seqs", "8", "--block-size", "8")
    process = ServeProcess(*flags, "--num-kv-blocks", "96")
    try:
        process.wait_ready()
        yield process
    finally:
        process.close()


@pytest.fixture(scope="module")
def prometheus(served: ServeProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """Prometheus after some seconds of mixed load: streams and not, shared prefixes, refusals, preemptions."""
    folder = tmp_path_factory.mktemp("prometheus")
    running = Prometheus(folder, service_url=served.url, altered=lambda text: re.sub(r"for: \w+", "for: 500ms", text))
    try:
        with _Load(served.url):
            running.wait_for("some scrapes under load", lambda: _num_scrapes(running) >= 8)
            running.wait_for("recorded ratios", lambda: bool(running.samples("instance:pellucid_errors:ratio_rate6h")))
        yield running
    finally:
        running.close()


class _Load:
    """Clients that ask on and on in threads until the block ends."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._stop = threading.Event()
        self._pool = ThreadPoolExecutor(4)

    def _client(self, number: int) -> None:
        turn = 0
        while not self._stop.is_set():
            turn += 1
            body = chat(PROMPT + str(turn), max_tokens=40, ignore_eos=True, stream=turn % 2 == 0)
            assert post(self._url, CHAT, body).status_code == 200
            if number == 0:
                assert post(self._url, CHAT, {"messages": []}).status_code == 400

    def __enter__(self) -> None:
        self._running = [self._pool.submit(self._client, number) for number in range(4)]

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        for running in self._running:
            running.result(TIMEOUT_S)
        self._pool.shutdown()


def _num_scrapes(prometheus: Prometheus) -> int:
    result = prometheus.samples('sum_over_time(up{job="pellucid"}[5m])')
    return int(float(result[0]["value"][1])) if result else 0


def _filled_in(expr: str) -> str:
    return expr.replace("$instance", ".*").replace("$__rate_interval", RATE_WINDOW)


def test_every_grafana_query_returns_data(prometheus: Prometheus) -> None:
    queries = [query.expr for row in ROWS for panel in row.panels for query in panel.queries]

    assert [expr for expr in queries if not prometheus.samples(_filled_in(expr))] == []


def test_every_rule_is_evaluated_without_error(prometheus: Prometheus) -> None:
    groups = prometheus.get("rules")["groups"]
    evaluated = {rule["name"]: rule["health"] for group in groups for rule in group["rules"]}

    assert set(evaluated.values()) == {"ok"}
    assert len(evaluated) == len(rules("alerts.yml")) + len(rules("recording_rules.yml"))


def test_every_recording_rule_returns_data(prometheus: Prometheus) -> None:
    names = [rule["record"] for rule in rules("recording_rules.yml")]

    assert [name for name in names if not prometheus.samples(name)] == []


def test_every_series_an_alert_looks_at_exists(prometheus: Prometheus) -> None:
    looked_at = {name + matchers for rule in rules("alerts.yml") for name, matchers in selectors(rule["expr"])}

    assert [selector for selector in sorted(looked_at) if not prometheus.samples(selector)] == []


def test_nothing_fires_on_a_healthy_server(prometheus: Prometheus) -> None:
    slow_here = {
        "PellucidTtftBurnFast",
        "PellucidTtftBurnSlow",
        "PellucidQueueOld",
    }  # a machine that runs other tests too

    assert prometheus.firing() - slow_here == set()


def test_exemplars_come_back_and_their_traces_resolve(prometheus: Prometheus, served: ServeProcess) -> None:
    found = prometheus.get(
        "query_exemplars",
        query="pellucid_time_to_first_token_seconds_bucket",
        start=str(time.time() - 600),
        end=str(time.time() + 10),
    )
    trace_ids = {exemplar["labels"]["trace_id"] for series in found for exemplar in series["exemplars"]}

    assert trace_ids
    for trace_id in trace_ids:
        answer = httpx.get(f"{served.url}/telemetry/traces/{trace_id}", timeout=TIMEOUT_S)
        assert answer.status_code == 200, answer.text


def test_killed_engine_raises_its_alerts_and_clears_them_when_it_is_back(
    prometheus: Prometheus, served: ServeProcess
) -> None:
    for _ in range(2):
        dead = engine_pid(served)
        os.kill(dead, signal.SIGKILL)
        # The next one is kept from loading: it might be up again before Prometheus has looked twice.
        prometheus.wait_for("the next engine", lambda dead=dead: engine_pids(served) not in ([], [dead]))
        os.kill(engine_pid(served), signal.SIGSTOP)
        prometheus.wait_for("engine down", lambda: "PellucidEngineDown" in prometheus.firing())
        os.kill(engine_pid(served), signal.SIGCONT)
        served.wait_ready()
    prometheus.wait_for("restarts seen", lambda: "PellucidEngineRestarting" in prometheus.firing())
    prometheus.wait_for("engine up again", lambda: "PellucidEngineDown" not in prometheus.firing())
