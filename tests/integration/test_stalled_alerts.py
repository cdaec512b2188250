"""An engine that hangs with requests in its inbox: the alerts fire in a real Prometheus, and end when it goes on."""

import os
import re
import shutil
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.support.http_calls import CHAT, chat, post
from tests.support.prometheus_process import Prometheus
from tests.support.serve_process import ServeProcess, engine_pid

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("prometheus") is None, reason="prometheus is not installed"),
]
ALERTS = {"PellucidEngineStalled", "PellucidHeartbeatOld"}
WAITING = 'sum(pellucid_requests_waiting{instance=~".+"})'
NUM_REQUESTS = 3


def quick(rules: str) -> str:
    """Shorten what the alerts wait for and look back over; their conditions stay."""
    rules = re.sub(r"for: \w+", "for: 500ms", rules).replace("[1m]", "[2s]")
    return rules.replace("heartbeat_age_seconds > 10", "heartbeat_age_seconds > 2")


def test_stopped_engine_raises_stalled_and_heartbeat_alerts_until_it_goes_on(tmp_path: Path) -> None:
    served = ServeProcess("--model", "random:tiny", "--threads", "1")
    try:
        served.wait_ready()
        prometheus = Prometheus(tmp_path, service_url=served.url, altered=quick)
        try:
            body = chat("tell me", max_tokens=20, ignore_eos=True)
            assert post(served.url, CHAT, body).status_code == 200
            prometheus.wait_for(
                "a scrape with tokens", lambda: bool(prometheus.samples("pellucid_generated_tokens_total > 0"))
            )
            assert not prometheus.firing() & ALERTS

            engine = engine_pid(served)
            os.kill(engine, signal.SIGSTOP)
            try:
                with ThreadPoolExecutor(NUM_REQUESTS) as pool:
                    answers = [pool.submit(post, served.url, CHAT, body) for _ in range(NUM_REQUESTS)]
                    prometheus.wait_for("both alerts", lambda: prometheus.firing() >= ALERTS)
                    waiting = prometheus.samples(WAITING)
                    running = prometheus.samples("pellucid_requests_running")
                    os.kill(engine, signal.SIGCONT)
                    statuses = [answer.result().status_code for answer in answers]
            finally:
                os.kill(engine, signal.SIGCONT)

            assert [sample["value"][1] for sample in waiting] == [str(NUM_REQUESTS)]
            assert [sample["value"][1] for sample in running] == ["0"]
            assert statuses == [200] * NUM_REQUESTS
            prometheus.wait_for("no alert is left", lambda: not prometheus.firing() & ALERTS)
        finally:
            prometheus.close()
    finally:
        served.close()
