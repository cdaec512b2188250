"""Health, readiness, overload and draining over a scripted engine."""

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from engine.config import SchedulerConfig
from engine.errors import ModelLoadError
from engine.supervision import SupervisionConfig
from service.settings import ServiceSettings
from tests.support.http_calls import CHAT, COMPLETIONS, chat, completion, error_of, post
from tests.support.scripted_service import ScriptedCore, StepGate, emits, serve

ONE_AT_A_TIME = SchedulerConfig(max_num_seqs=1, num_kv_blocks=64)


def gated(scheduling: SchedulerConfig = ONE_AT_A_TIME) -> tuple[ScriptedCore, StepGate]:
    gate = StepGate()
    gate.close()
    return ScriptedCore(emits(b"ok"), scheduling=scheduling, cues=[gate]), gate


def test_server_that_loads_is_alive_not_ready_and_refuses_with_retry_after() -> None:
    core = ScriptedCore(emits(b"ok"), load_gate=threading.Event())
    assert core.load_gate is not None
    with serve(core=core, wait_ready=False) as served:
        assert served.get("/health").status_code == 200
        for response in (served.get("/ready"), served.get("/v1/models"), post(served.url, CHAT, chat())):
            assert response.status_code == 503
            assert int(response.headers["retry-after"]) >= 1
            assert "loading" in error_of(response)["message"]
        assert served.get("/info").json()["state"] == "loading"
        core.load_gate.set()
        served.until(lambda: served.engine.info is not None)
        assert served.get("/ready").json() == {"status": "ready"}
        assert served.get("/v1/models").json()["data"][0]["id"] == "scripted"


def test_model_that_does_not_load_never_becomes_ready() -> None:
    core = ScriptedCore(emits(b""), load_error=ModelLoadError("t.gguf: `general.architecture` is missing"))
    with serve(core=core, wait_ready=False) as served:
        served.until(lambda: served.engine.state.value == "failed")
        assert served.get("/health").status_code == 503
        assert "general.architecture" in error_of(served.get("/ready"))["message"]


@pytest.mark.parametrize(("ready_s", "live_s", "codes"), [(0.2, 60.0, (503, 200)), (60.0, 0.2, (200, 503))])
def test_silent_engine_turns_ready_and_health_503_past_a_bound_each_until_it_is_heard_of_again(
    ready_s: float, live_s: float, codes: tuple[int, int]
) -> None:
    # One bound a server: between two in one, a slow machine could miss the time that lies between them.
    core, gate = gated()
    settings = ServiceSettings(ready_heartbeat_s=ready_s, live_heartbeat_s=live_s)
    with serve(core=core, settings=settings) as served, ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(post, served.url, CHAT, chat())
        assert gate.waiting.wait(10)
        served.until(lambda: served.engine.heartbeat_age() > 0.2)
        assert (served.get("/ready").status_code, served.get("/health").status_code) == codes
        gate.open()
        assert waiting.result(10).status_code == 200
        served.until(lambda: served.engine.heartbeat_age() < 0.1)


def test_engine_that_hangs_fails_what_waits_and_turns_ready_and_health_503() -> None:
    core, gate = gated()
    supervision = SupervisionConfig(hang_timeout_s=0.8, check_s=0.02, max_restarts=0, shutdown_s=0.2)
    with serve(core=core, supervision=supervision) as served, ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(post, served.url, CHAT, chat())
        assert gate.waiting.wait(10)
        answer = waiting.result(10)
        assert answer.status_code == 500
        assert error_of(answer)["type"] == "internal_error"
        gate.open()
        served.until(lambda: served.engine.state.value == "failed")
        assert (served.get("/ready").status_code, served.get("/health").status_code) == (503, 503)


@pytest.mark.alone
def test_idle_engine_stays_ready() -> None:
    with serve(script=emits(b"ok"), settings=ServiceSettings(ready_heartbeat_s=0.3)) as served:
        assert not threading.Event().wait(0.6)  # twice the bound without any request
        assert served.get("/ready").status_code == 200
        assert float(str(served.get("/stats").json()["engine"]["heartbeat_age_s"])) < 0.3


def test_queue_past_its_bound_is_refused_with_retry_after_and_n_counts_n() -> None:
    core, gate = gated(SchedulerConfig(max_num_seqs=2, num_kv_blocks=64))
    with serve(core=core, settings=ServiceSettings(max_queue=2)) as served, ThreadPoolExecutor(2) as pool:
        first = pool.submit(post, served.url, COMPLETIONS, completion(max_tokens=1))
        assert gate.waiting.wait(10)
        second = pool.submit(post, served.url, COMPLETIONS, completion(n=2, max_tokens=1))
        served.until(lambda: served.services.admission.taken == 3)
        full = post(served.url, COMPLETIONS, completion(n=2))
        assert full.status_code == 429
        assert int(full.headers["retry-after"]) >= 1
        assert error_of(full)["type"] == "rate_limit_exceeded"
        assert served.get("/health").status_code == 200
        never = post(served.url, COMPLETIONS, completion(["a", "b", "c"], n=2))
        assert never.status_code == 400
        assert error_of(post(served.url, COMPLETIONS, completion(n=3)))["param"] == "n"
        gate.open()
        assert (first.result(10).status_code, second.result(10).status_code) == (200, 200)
        assert post(served.url, COMPLETIONS, completion(n=2)).status_code == 200
        text = served.get("/metrics").text
    assert 'pellucid_requests_rejected_total{error_type="rate_limit_exceeded"} 1.0' in text


def test_flood_is_refused_past_the_bound_and_every_answer_is_complete() -> None:
    core, gate = gated()
    with serve(core=core, settings=ServiceSettings(max_queue=9)) as served, ThreadPoolExecutor(40) as pool:
        answers = [pool.submit(post, served.url, COMPLETIONS, completion(max_tokens=1)) for _ in range(40)]
        served.until(lambda: int(served.services.recorder.stats()["counters"]["requests_rejected"]) == 30)
        gate.open()
        statuses = [answer.result(20).status_code for answer in answers]
    assert sorted(set(statuses)) == [200, 429]
    assert statuses.count(200) == 10


def test_drain_lets_what_runs_end_and_refuses_the_rest() -> None:
    core, gate = gated()
    with serve(core=core) as served, served.streaming(CHAT, chat()) as answer:
        assert gate.waiting.wait(10)
        assert served.post("/admin/drain").status_code == 202
        assert served.post("/admin/drain").status_code == 202
        assert error_of(served.get("/ready"))["message"] == "the server is shutting down"
        refused = post(served.url, CHAT, chat())
        assert refused.status_code == 503
        assert "retry-after" in refused.headers
        assert served.get("/health").status_code == 200
        gate.open()
        assert answer.rest()[-1] == "[DONE]"


def test_drain_ends_what_is_left_after_the_grace_period_with_an_error_frame() -> None:
    core, gate = gated()
    with serve(core=core, settings=ServiceSettings(grace_s=0.1)) as served:
        with served.streaming(CHAT, chat()) as answer:
            assert gate.waiting.wait(10)
            served.post("/admin/drain")
            payloads = answer.rest()
        gate.open()
    assert payloads[-1]["error"]["type"] == "service_unavailable"


def test_reset_prefix_cache_drops_the_cached_blocks() -> None:
    with serve(script=emits(b"ok")) as served:
        body = completion("a prompt that fills more than one block of sixteen", max_tokens=1)
        for _ in range(2):
            usage: dict[str, Any] = post(served.url, COMPLETIONS, body).json()["usage"]
        assert usage["prompt_tokens_details"]["cached_tokens"] >= 16
        assert served.post("/admin/reset_prefix_cache").json()["dropped_blocks"] >= 3
        again = post(served.url, COMPLETIONS, body).json()["usage"]
    assert again["prompt_tokens_details"]["cached_tokens"] == 0
