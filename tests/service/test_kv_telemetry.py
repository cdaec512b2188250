"""`/telemetry/kv/...` over a real service: pages, snapshot and live feed agree, across restarts and slow viewers."""

import gzip
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from engine.config import SchedulerConfig
from engine.supervision import SupervisionConfig
from observability.recorder import RingSizes
from observability.trace_check import check_trace
from service.settings import ServiceSettings
from tests.support.http_calls import COMPLETIONS, completion, error_of, post
from tests.support.scripted_service import ScriptedCore, Served, StepGate, emits, serve

RESTARTS = SupervisionConfig(check_s=0.02, max_restarts=2, first_delay_s=0.01, shutdown_s=2.0)


@pytest.fixture(scope="module")
def served() -> Any:
    core = ScriptedCore(emits(b"hello"), SchedulerConfig(num_kv_blocks=64, block_size=4, max_num_batched_tokens=64))
    with serve(core=core) as running:
        for prompt in ("one two three four", "one two three five", "one"):
            assert post(running.url, COMPLETIONS, completion(prompt, max_tokens=6)).status_code == 200
        yield running


def lines(response: httpx.Response) -> tuple[Any, list[Any]]:
    """Return the first line and the rest."""
    assert response.status_code == 200, response.text
    assert response.headers["content-type"].startswith("application/x-ndjson")
    first, *rest = [json.loads(line) for line in response.text.splitlines()]
    return first, rest


class Viewer:
    """Reads server-sent events from a response, field by field."""

    def __init__(self, response: httpx.Response) -> None:
        assert response.headers["content-type"].startswith("text/event-stream")
        self.lines = response.iter_lines()
        self.last_id = ""

    def next(self) -> tuple[str, Any]:
        """Return kind and data of the next event; comments are passed over."""
        kind, data = "message", ""
        for line in self.lines:
            if not line and data:
                return kind, json.loads(data)
            name, _, value = line.partition(": ")
            if name == "event":
                kind = value
            elif name == "data":
                data = value
            elif name == "id":
                self.last_id = value
        raise AssertionError("the feed ended")

    def rest(self) -> list[str]:
        return list(self.lines)


@contextmanager
def viewing(served: Served, query: str = "?interval_ms=0", **headers: str) -> Iterator[Viewer]:
    with (
        httpx.Client(timeout=20) as client,
        client.stream("GET", served.url + "/telemetry/kv/live" + query, headers=headers) as response,
    ):
        assert response.status_code == 200
        yield Viewer(response)


def events_after(viewer: Viewer, *, until: str) -> list[Any]:
    """Read events until one of this type came."""
    got: list[Any] = []
    while not got or got[-1]["type"] != until:
        kind, data = viewer.next()
        assert kind == "message", (kind, data)
        for event in data:
            got.append(event)
            if event["type"] == until:
                break
    return got


# --- pages -------------------------------------------------------------------------------------------------------


def test_events_in_pages_are_the_events_at_once(served: Served) -> None:
    position, everything = lines(served.get("/telemetry/kv/events?limit=10000"))
    assert everything[0]["type"] == "engine_started"
    assert [event["seq"] for event in everything] == list(range(1, len(everything) + 1))
    assert (position["num_dropped"], position["has_life_ended"], position["is_life_lost"]) == (0, False, False)
    pages, since = [], 0
    while True:
        page = f"/telemetry/kv/events?life={position['life']}&since={since}&limit=7"
        at, events = lines(served.get(page))
        if not events:
            break
        pages += events
        since = at["last_seq"]
        assert at["num_events"] == len(events) <= 7
    assert pages == everything


def test_events_of_an_unknown_life_are_the_current_ones_and_say_so(served: Served) -> None:
    position, events = lines(served.get("/telemetry/kv/events?life=other-1&since=40"))
    assert position["is_life_lost"]
    assert events[0]["seq"] == 1


@pytest.mark.parametrize(
    "path",
    [
        "/telemetry/kv/events?since=x",
        "/telemetry/kv/events?limit=0",
        "/telemetry/kv/events?limit=10001",
        "/telemetry/kv/live?interval_ms=-1",
        "/telemetry/kv/live?life=a&since=",
        "/telemetry/kv/live?since=" + "9" * 19,
    ],
)
def test_bad_parameter_is_refused_by_name(served: Served, path: str) -> None:
    response = served.get(path)
    assert response.status_code == 400
    assert error_of(response)["param"] in path


def test_events_say_how_many_the_ring_has_lost() -> None:
    with serve(script=emits(b"hello"), ring_sizes=RingSizes(events=16)) as served:
        post(served.url, COMPLETIONS, completion("abc", max_tokens=6))
        position, events = lines(served.get("/telemetry/kv/events"))
        assert len(events) == 16
        assert position["num_dropped"] == events[0]["seq"] - 1 > 0


# --- snapshot ----------------------------------------------------------------------------------------------------


def owners(blocks: dict[int, dict[str, Any]]) -> dict[int, tuple[str, int]]:
    return {block_id: (block["state"], block["ref_count"]) for block_id, block in blocks.items()}


def test_snapshot_names_the_holders_of_every_block_while_a_request_runs() -> None:
    gate = StepGate()
    core = ScriptedCore(
        emits(b"hello"), SchedulerConfig(num_kv_blocks=64, block_size=4, max_num_batched_tokens=64), cues=(gate,)
    )
    with serve(core=core) as served:
        gate.close()
        answer = threading.Thread(target=post, args=(served.url, COMPLETIONS, completion("x" * 10, n=2, max_tokens=4)))
        answer.start()
        gate.waiting.wait(20)
        gate.step()  # the prefill and the fork
        served.until(lambda: any(e["type"] == "first_token" for e in _events(served)))
        body = served.get("/telemetry/kv/snapshot").json()
        gate.open()
        answer.join(20)
        idle = served.get("/telemetry/kv/snapshot").json()
    held = [block for block in body["blocks"] if block["state"] == "referenced"]
    assert held[0]["ref_count"] == 2
    assert [owner["position"] for owner in held[0]["owners"]] == [0, 0]
    assert [owner["index"] for owner in held[0]["owners"]] == [0, 1]
    assert body["requests"][0]["n"] == 2
    assert body["counts"]["referenced"] == len(held)
    assert sum(body["counts"].values()) == body["header"]["num_blocks"] == 64
    assert idle["requests"] == []
    assert {block["state"] for block in idle["blocks"]} == {"cached"}
    assert all(block["block_hash"] for block in idle["blocks"])


def _events(served: Served) -> list[Any]:
    tape = served.services.recorder.tape
    return [{"type": str(event.__struct_config__.tag)} for event in tape.between(tape.first, tape.stop)]


# --- trace file --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("coding", ["identity", "gzip", "br, gzip;q=0.5", "gzip;q=0"])
def test_trace_downloaded_is_a_sound_file(served: Served, tmp_path: Path, coding: str) -> None:
    with (
        httpx.Client() as client,
        client.stream("GET", served.url + "/telemetry/kv/trace", headers={"accept-encoding": coding}) as response,
    ):
        body = b"".join(response.iter_raw())
    is_packed = "gzip" in coding and coding != "gzip;q=0"
    assert response.headers.get("content-encoding") == ("gzip" if is_packed else None)
    assert "filename=" in response.headers["content-disposition"]
    path = tmp_path / "trace.jsonl"
    path.write_bytes(body)
    report = check_trace(path)
    assert report.ok, report.to_text()
    assert report.from_start
    assert report.num_ended["finished"] == 3
    assert json.loads((gzip.decompress(body) if is_packed else body).splitlines()[0])["schema"] == "pellucid-trace"


def test_trace_of_a_ring_that_lost_its_beginning_starts_with_a_snapshot_and_is_sound(tmp_path: Path) -> None:
    core = ScriptedCore(emits(b"hello there"), SchedulerConfig(num_kv_blocks=64, block_size=4))
    with serve(core=core, ring_sizes=RingSizes(events=60)) as served:
        for number in range(6):
            post(served.url, COMPLETIONS, completion(f"say it {number % 2}", n=2, max_tokens=8))
        path = tmp_path / "trace.jsonl"
        path.write_bytes(served.get("/telemetry/kv/trace").content)
    report = check_trace(path)
    assert report.ok, report.to_text()
    assert report.from_snapshot
    assert report.num_blocks["unknown"] == 0


def test_trace_of_an_unknown_life_is_404(served: Served) -> None:
    response = served.get("/telemetry/kv/trace?life=nobody")
    assert response.status_code == 404
    assert error_of(response)["param"] == "life"


# --- live --------------------------------------------------------------------------------------------------------


def test_live_feed_says_the_life_first_and_then_what_happens(served: Served) -> None:
    with viewing(served) as viewer:
        kind, life = viewer.next()
        assert kind == "life"
        assert life["header"]["num_blocks"] == 64
        post(served.url, COMPLETIONS, completion("live", max_tokens=2))
        got = events_after(viewer, until="finished")
        assert got[0]["type"] == "arrived"
        seqs = [event["seq"] for event in got]
        assert seqs == list(range(seqs[0], seqs[0] + len(seqs)))
        assert viewer.last_id.startswith(life["life"] + ":")


def test_live_feed_resumes_after_the_last_event_id_without_loss_or_repetition(served: Served) -> None:
    with viewing(served) as viewer:
        viewer.next()
        post(served.url, COMPLETIONS, completion("first", max_tokens=2))
        before = events_after(viewer, until="arrived")
        last_id = viewer.last_id
    post(served.url, COMPLETIONS, completion("second", max_tokens=2))
    with viewing(served, **{"Last-Event-ID": last_id}) as viewer:
        assert viewer.next()[0] == "life"
        kind, events = viewer.next()
    assert kind == "message"
    assert events[0]["seq"] == int(last_id.rpartition(":")[2]) + 1
    assert before


def test_snapshot_followed_by_the_live_feed_has_no_gap(served: Served) -> None:
    snapshot = served.get("/telemetry/kv/snapshot").json()
    post(served.url, COMPLETIONS, completion("after", max_tokens=2))
    with viewing(served, f"?life={snapshot['life']}&since={snapshot['seq']}") as viewer:
        assert viewer.next()[0] == "life"
        _, events = viewer.next()
    assert events[0]["seq"] == snapshot["seq"] + 1


def test_viewer_that_reads_too_slowly_is_told_what_it_missed_and_nothing_waits_for_it() -> None:
    with serve(script=emits(b"hello"), ring_sizes=RingSizes(events=32)) as served:
        position, _ = lines(served.get("/telemetry/kv/events"))
        for _ in range(3):
            assert post(served.url, COMPLETIONS, completion("abc", max_tokens=6)).status_code == 200
        with viewing(served, f"?life={position['life']}&since=1") as viewer:
            assert viewer.next()[0] == "life"
            kind, gap = viewer.next()
            assert kind == "gap"
            _, events = viewer.next()
            assert events[0]["seq"] == 1 + gap["num_dropped"] + 1


def test_live_feed_is_closed_at_once_when_the_service_ends() -> None:
    with serve(script=emits(b"hello")) as served, viewing(served) as viewer:
        viewer.next()
        served.loop.call_soon_threadsafe(served.services.recorder.tape.close)
        assert viewer.rest() == []


def test_silent_live_feed_sends_comments() -> None:
    settings = ServiceSettings(keep_alive_s=0.02)
    with serve(script=emits(b"hello"), settings=settings) as served, viewing(served) as viewer:
        assert any(line.startswith(":") for line in viewer.lines)


def test_head_of_the_live_feed_ends(served: Served) -> None:
    response = httpx.head(served.url + "/telemetry/kv/live", timeout=10)
    assert response.status_code == 200
    assert response.headers["content-type"].startswith("text/event-stream")


# --- restart -----------------------------------------------------------------------------------------------------


def test_restarted_engine_is_another_life_everywhere(tmp_path: Path) -> None:
    failing = {"now": False}

    def cue(call: int, batch: object) -> None:
        if failing.pop("now", False):
            raise RuntimeError("on cue")

    core = ScriptedCore(emits(b"hello"), cues=(cue,))
    with serve(core=core, supervision=RESTARTS) as served:
        post(served.url, COMPLETIONS, completion("before", max_tokens=2))
        old, first_events = lines(served.get("/telemetry/kv/events"))
        with viewing(served) as viewer:
            assert viewer.next()[1]["life"] == old["life"]
            failing["now"] = True
            assert post(served.url, COMPLETIONS, completion("dies", max_tokens=2)).status_code == 500
            served.until(lambda: served.engine.num_restarts == 1 and not served.services.not_ready_reason())
            post(served.url, COMPLETIONS, completion("after", max_tokens=2))
            kind, data = viewer.next()
            while kind != "life":
                kind, data = viewer.next()
            assert data["life"] != old["life"]
            _, events = viewer.next()
            assert events[0]["seq"] == 1
        rest, events = lines(served.get(f"/telemetry/kv/events?life={old['life']}&since={old['last_seq']}"))
        assert rest["has_life_ended"]
        assert rest["current_life"] == data["life"]
        assert events[-1]["type"] == "engine_failed"
        assert events[0]["seq"] == len(first_events) + 1
        for life, ended in ((old["life"], {"finished": 1, "failed": 1}), ("", {"finished": 1})):
            path = tmp_path / "life.jsonl"
            path.write_bytes(served.get("/telemetry/kv/trace" + (f"?life={life}" if life else "")).content)
            report = check_trace(path)
            assert report.ok, report.to_text()
            assert (report.num_lives, report.num_ended) == (1, ended)


# --- recording ---------------------------------------------------------------------------------------------------

RECORDING = "/telemetry/kv/recording"


def test_recording_started_and_stopped_over_http_is_a_sound_file(tmp_path: Path) -> None:
    with serve(script=emits(b"hello"), settings=ServiceSettings(trace_dir=str(tmp_path))) as served:
        assert served.get(RECORDING).json()["state"] == "never"
        begun = post(served.url, RECORDING, {"action": "start", "max_seconds": 60})
        assert begun.status_code == 201, begun.text
        assert begun.json()["caps"]["max_seconds"] == 60
        again = post(served.url, RECORDING, {"action": "start"})
        assert (again.status_code, error_of(again)["type"]) == (409, "conflict_error")
        post(served.url, COMPLETIONS, completion("recorded", max_tokens=4))
        status = post(served.url, RECORDING, {"action": "stop"}).json()
    assert (status["state"], status["reason"], status["directory"]) == ("stopped", "asked", str(tmp_path))
    report = check_trace(tmp_path / status["files"][0]["name"])
    assert report.ok, report.to_text()
    assert report.num_ended == {"finished": 1}
    assert b"recorded" not in gzip.decompress((tmp_path / status["files"][0]["name"]).read_bytes())


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"action": "start", "path": "/etc/passwd"}, "path"),
        ({"action": "erase"}, "action"),
        ({}, "action"),
        ({"action": "start", "max_bytes": 10}, "max_bytes"),
        ({"action": "start", "max_bytes": 1 << 60}, "max_bytes"),
        ({"action": "start", "max_seconds": 0}, "max_seconds"),
        ({"action": "start"}, "action"),
    ],
)
def test_recording_refuses_what_it_wasnt_configured_for(served: Served, body: dict[str, Any], param: str) -> None:
    response = post(served.url, RECORDING, body)
    assert (response.status_code, error_of(response)["param"]) == (400, param)
