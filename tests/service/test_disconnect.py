"""A client that leaves frees everything within two steps: streamed or not, while queued, in prefill, in decode."""

import logging
import socket
import struct
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import pytest

from engine.config import SchedulerConfig
from service.settings import ServiceSettings
from tests.support.http_calls import CHAT, COMPLETIONS, chat, completion, post
from tests.support.scripted_service import ScriptedCore, Served, StepGate, emits, serve

SCHEDULING = SchedulerConfig(block_size=16, num_kv_blocks=64, max_num_seqs=1, max_num_batched_tokens=32)
STREAMED = pytest.mark.parametrize("streamed", [True, False], ids=["streamed", "whole"])
ROUTES = pytest.mark.parametrize(("path", "body"), [(CHAT, chat()), (COMPLETIONS, completion())], ids=["chat", "text"])


def gated() -> tuple[ScriptedCore, StepGate]:
    gate = StepGate()
    gate.close()
    return ScriptedCore(emits(b"x" * 500), scheduling=SCHEDULING, cues=[gate]), gate


def referenced_blocks(served: Served) -> Any:
    return served.stats()["gauges"]["kv"]["referenced"]


def assert_all_is_given_back(served: Served, gate: StepGate, *, num_aborted: int = 1) -> None:
    """Let two steps go and look: blocks back, one terminal event each, no permit kept, the next request served."""
    served.until(lambda: served.engine.num_in_flight == 0)
    gate.step()
    gate.step()
    served.until(lambda: served.services.recorder.requests()["in_flight"] == [])
    assert referenced_blocks(served) == 0
    counters = served.stats()["counters"]
    assert counters["requests_aborted"] == num_aborted
    assert counters["requests_received"] == num_aborted
    assert served.services.admission.taken == 0
    gate.open()
    assert post(served.url, COMPLETIONS, completion(max_tokens=2)).status_code == 200


@ROUTES
@STREAMED
def test_client_that_leaves_in_decode_frees_its_blocks_within_two_steps(
    path: str, body: dict[str, Any], streamed: bool
) -> None:
    core, gate = gated()
    with serve(core=core) as served:
        with served.connection() as connection:
            connection.send(path, {**body, "stream": streamed, "max_tokens": 400})
            for _ in range(3):
                gate.step()
            served.until(lambda: served.stats()["counters"]["generated_tokens"] >= 2)
        assert_all_is_given_back(served, gate)


@STREAMED
def test_client_that_leaves_in_prefill_stops_it_at_the_next_chunk(streamed: bool) -> None:
    core, gate = gated()
    with serve(core=core) as served:
        with served.connection() as connection:
            connection.send(COMPLETIONS, completion([[7] * 500], stream=streamed, max_tokens=100))
            gate.step()
            served.until(lambda: served.stats()["counters"]["engine_steps"] >= 1)
        served.until(lambda: served.engine.num_in_flight == 0)
        gate.step()
        gate.step()
        served.until(lambda: served.services.recorder.requests()["in_flight"] == [])
        counters = served.stats()["counters"]
        assert counters["prompt_tokens_computed"] <= 3 * 32
        assert counters["generated_tokens"] == 0
        assert referenced_blocks(served) == 0
        gate.open()


@STREAMED
def test_client_that_leaves_the_queue_is_forgotten_and_the_running_one_goes_on(streamed: bool) -> None:
    core, gate = gated()
    with serve(core=core) as served, served.streaming(COMPLETIONS, completion(max_tokens=3)) as running:
        assert gate.waiting.wait(10)
        with served.connection() as connection:
            connection.send(COMPLETIONS, completion("other", stream=streamed))
            served.until(lambda: served.engine.num_in_flight == 2)
        served.until(lambda: served.engine.num_in_flight == 1)
        gate.open()
        assert running.rest()[-1] == "[DONE]"
        served.until(lambda: served.services.recorder.requests()["in_flight"] == [])
        counters = served.stats()["counters"]
    assert (counters["requests_finished"], counters["requests_aborted"]) == (1, 1)
    assert counters["generated_tokens"] == 3


def test_queued_stream_gets_its_head_and_comments_before_any_step() -> None:
    core, gate = gated()
    settings = ServiceSettings(keep_alive_s=0.05)
    with serve(core=core, settings=settings) as served:
        with served.streaming(CHAT, chat(max_tokens=2)) as answer:
            assert answer.response.status_code == 200
            text = answer.read()
            while ": keep-alive\n\n" not in text:
                text += answer.read()
            assert '"content":"x' not in text
            gate.open()
            answer.rest()
        served.until(lambda: served.services.admission.taken == 0)
        table = served.services.recorder.requests()["recent"]
    assert table[0]["ttft_s"] is not None
    assert float(str(table[0]["ttft_s"])) >= settings.keep_alive_s


def test_many_clients_that_leave_at_once_leave_nothing_behind() -> None:
    core, gate = gated()
    with serve(core=core) as served:
        connections = [served.connection() for _ in range(20)]
        opened = [connection.__enter__() for connection in connections]
        for index, connection in enumerate(opened):
            connection.send(COMPLETIONS, completion(f"p{index}", stream=index % 2 == 0, max_tokens=50))
        served.until(lambda: served.engine.num_in_flight == 20)
        for entered in connections:
            entered.__exit__(None, None, None)
        assert_all_is_given_back(served, gate, num_aborted=20)
        text = served.get("/metrics").text
    assert 'pellucid_requests_total{finish_reason="abort"} 20.0' in text
    assert "pellucid_requests_running 0.0" in text


@STREAMED
def test_log_stays_clean_when_clients_leave_before_and_during_the_answer(
    streamed: bool, caplog: pytest.LogCaptureFixture
) -> None:
    core, gate = gated()
    body = {**chat(), "stream": streamed}
    with serve(core=core) as served:
        with served.connection() as connection:
            head = f"POST {CHAT} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 99\r\n\r\n"
            connection.sock.sendall(head.encode() + b'{"mess')
        with served.connection() as connection:
            connection.send(CHAT, body)
            served.until(lambda: served.engine.num_in_flight == 1)
        served.until(lambda: served.engine.num_in_flight == 0)
        gate.open()
        assert post(served.url, CHAT, chat(max_tokens=1)).status_code == 200
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == []


def test_log_stays_clean_when_many_streams_vanish_while_the_service_is_behind(caplog: pytest.LogCaptureFixture) -> None:
    num_clients, num_steps = 50, 12
    gate = StepGate()
    gate.close()
    scheduling = SchedulerConfig(block_size=16, num_kv_blocks=256, max_num_seqs=64, max_num_batched_tokens=4096)
    core = ScriptedCore(emits(b"x" * 500), scheduling=scheduling, cues=[gate])
    with serve(core=core) as served, ExitStack() as stack:
        sockets = [stack.enter_context(served.connection()) for _ in range(num_clients)]
        for index, connection in enumerate(sockets):
            connection.send(COMPLETIONS, completion(f"p{index}", stream=True, max_tokens=400))
        served.until(lambda: served.engine.num_in_flight == num_clients)
        gate.step()
        served.until(lambda: served.stats()["counters"]["generated_tokens"] >= 1)

        def vanish() -> None:
            """Let the engine go on, then reset every connection, while the service's loop can look at neither."""
            for _ in range(num_steps):
                assert gate.waiting.wait(10)
                gate.waiting.clear()
                gate.step()
            for connection in sockets:
                connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                connection.sock.close()

        served.call(vanish)
        gate.open()
        served.until(lambda: served.engine.num_in_flight == 0)
        served.until(lambda: served.services.recorder.requests()["in_flight"] == [])
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == []


def test_same_client_request_id_twice_is_two_requests() -> None:
    core, gate = gated()
    headers = {"x-request-id": "same"}
    with serve(core=core) as served, ThreadPoolExecutor(2) as pool:
        both = [pool.submit(post, served.url, CHAT, chat(max_tokens=3), headers=headers) for _ in range(2)]
        served.until(lambda: served.engine.num_in_flight == 2)
        gate.open()
        answers = [answer.result(20) for answer in both]
    assert [answer.status_code for answer in answers] == [200, 200]
    assert [answer.headers["x-client-request-id"] for answer in answers] == ["same", "same"]
    assert len({answer.headers["x-request-id"] for answer in answers}) == 2
