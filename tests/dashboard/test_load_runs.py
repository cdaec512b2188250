"""Loads over HTTP, against a scripted server: start, watch, stop, compare, export, keep."""

import csv
import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from dashboard.load_record import LoadRecord
from dashboard.load_store import LoadStore
from dashboard.server import create_app
from dashboard.targets import Target
from tests.support.loopback import serving
from tests.support.timed_server import Answer, Refusal, TimedServer, steady, timed_server

RUNS = "/api/load/runs"
LATE = 60.0  # seconds that no test waits


def quick(number: int, body: dict[str, Any]) -> Answer:
    return steady(3)


def endless(number: int, body: dict[str, Any]) -> Answer:
    """Answer the probe, then never come to an end."""
    return steady(1) if body["max_tokens"] == 1 else steady(2, gap_s=LATE)


@contextmanager
def dashboard(*servers: TimedServer, state_dir: Path | None = None) -> Iterator[httpx.Client]:
    """A dashboard in front of the first server, with the others as targets b, c."""
    targets = [Target(name, server.url) for name, server in zip("bc", servers[1:], strict=False)]
    app = create_app(servers[0].url, targets=targets, state_dir=state_dir)
    with serving(app) as url, httpx.Client(base_url=url, timeout=20.0, trust_env=False) as client:
        yield client


@pytest.fixture
def server() -> Iterator[TimedServer]:
    with timed_server(quick) as server:
        yield server


@pytest.fixture
def client(server: TimedServer) -> Iterator[httpx.Client]:
    with dashboard(server) as client:
        yield client


def order(**fields: Any) -> dict[str, Any]:
    plan = {
        "arrivals": {"kind": "closed", "concurrency": 2},
        "num_requests": 6,
        "prompt_tokens": {"kind": "fixed", "tokens": 8},
        "output_tokens": {"kind": "fixed", "tokens": 3},
    }
    return {"sides": [{"target": "service"}], "plan": {**plan, **fields.pop("plan", {})}, **fields}


def events(client: httpx.Client, run_id: str) -> Iterator[tuple[str, Any]]:
    with client.stream("GET", f"{RUNS}/{run_id}/live") as live:
        name = ""
        for line in live.iter_lines():
            if line.startswith("event: "):
                name = line[7:]
            elif line.startswith("data: "):
                yield name, json.loads(line[6:])


def finished(client: httpx.Client, order: dict[str, Any]) -> dict[str, Any]:
    """Run a load to its end and return its record."""
    run = client.post(RUNS, json=order).json()
    for _ in events(client, run["id"]):
        pass
    return dict(client.get(f"{RUNS}/{run['id']}").json())


def test_load_runs_to_its_end_and_is_shown_while_it_runs(client: httpx.Client, server: TimedServer) -> None:
    started = client.post(RUNS, json=order(label="first"))
    assert started.status_code == 201
    run = started.json()
    assert (run["id"], run["label"], run["state"], run["parts"]) == ("load-1", "first", "running", [])
    seen = list(events(client, run["id"]))
    snapshots = [content for name, content in seen if name == "snapshot"]
    assert snapshots[-1]["snapshot"]["phase"] == "done"
    assert snapshots[-1]["snapshot"]["num_done"] == 6
    assert snapshots[-1]["age_s"] >= 0
    last = seen[-1][1]
    assert last["state"] == "done"
    result = last["parts"][0]["result"]
    assert (result["requests"], result["timeline"]) == ([], [])
    assert result["stages"][0]["counts"]["ok"] == 6
    assert result["stages"][0]["metrics"]["time_to_first_token"]["p99"] is None
    assert last["parts"][0]["cautions"] != []
    assert len(server.bodies) == 7
    assert client.get(f"{RUNS}/load-1").json()["parts"][0]["result"]["timeline"] != []
    assert [each["id"] for each in client.get(RUNS).json()["runs"]] == ["load-1"]


def test_load_whose_watcher_comes_late_is_shown_at_once(client: httpx.Client) -> None:
    finished(client, order())
    assert [name for name, _ in events(client, "load-1")] == ["run"]


def test_stop_ends_the_load_and_every_request_of_it() -> None:
    with timed_server(endless) as server, dashboard(server) as client:
        run = client.post(RUNS, json=order(plan={"num_requests": 0, "duration_s": LATE})).json()
        server.until(lambda: server.running == 2)
        stopped = client.delete(f"{RUNS}/{run['id']}").json()
        assert stopped["state"] == "stopped"
        assert stopped["parts"][0]["result"]["stages"][0]["counts"]["cut"] == 2
        server.until(lambda: server.running == 0)


def test_starting_again_leaves_no_worker_of_the_load_before() -> None:
    with timed_server(endless) as server, dashboard(server) as client:
        plan = {"num_requests": 0, "duration_s": LATE}
        for concurrency in (2, 3, 4):
            client.post(RUNS, json=order(plan={**plan, "arrivals": {"kind": "closed", "concurrency": concurrency}}))
            server.until(lambda wanted=concurrency: server.running == wanted)
        assert server.most_at_once <= 5, "workers of one load and the probe of the next"
        states = [run["state"] for run in client.get(RUNS).json()["runs"]]
        assert states == ["running", "stopped", "stopped"]
        client.delete(f"{RUNS}/load-3")
        server.until(lambda: server.running == 0)


def test_dashboard_that_shuts_down_ends_its_load() -> None:
    with timed_server(endless) as server:
        with dashboard(server) as client:
            client.post(RUNS, json=order(plan={"num_requests": 0, "duration_s": LATE}))
            server.until(lambda: server.running == 2)
        server.until(lambda: server.running == 0)


def test_two_servers_take_turns_with_the_same_requests_in_each_round() -> None:
    with timed_server(quick) as one, timed_server(quick) as other, dashboard(one, other) as client:
        sides = [{"target": "service"}, {"target": "b", "model": "named"}]
        record = finished(client, order(sides=sides, rounds=2))
        assert [(part["side"], part["round"]) for part in record["parts"]] == [(0, 0), (1, 0), (0, 1), (1, 1)]
        turns = [[message_of(body) for body in server.bodies if body["max_tokens"] == 3] for server in (one, other)]
        assert sorted(turns[0][:6]) == sorted(turns[1][:6])
        assert sorted(turns[0][:6]) != sorted(turns[0][6:])
        assert {body["model"] for body in other.bodies} == {"named"}


def message_of(body: dict[str, Any]) -> str:
    return str(body["messages"][0]["content"])


def test_failures_are_counted_and_named_and_end_nothing() -> None:
    def refusing(number: int, body: dict[str, Any]) -> Answer:
        return Refusal(429) if number % 2 else steady(3)

    with timed_server(refusing) as server, dashboard(server) as client:
        record = finished(client, order())
    stage = record["parts"][0]["result"]["stages"][0]
    assert record["state"] == "done"
    assert stage["counts"]["rejected"] == 3
    assert sum(stage["errors"].values()) == 3
    assert stage["attainment"]["ratio"] == 0.5


def test_load_against_a_server_that_is_down_fails_with_one_line(server: TimedServer) -> None:
    app = create_app(server.url, targets=[Target("down", "http://127.0.0.1:9")])
    with serving(app) as url, httpx.Client(base_url=url, timeout=20.0, trust_env=False) as client:
        record = finished(client, order(sides=[{"target": "down"}]))
    assert record["state"] == "failed"
    assert "127.0.0.1:9" in record["error"]
    assert record["parts"] == []


def test_trace_is_replayed_from_the_body_and_its_place_is_not_told(client: httpx.Client, server: TimedServer) -> None:
    trace = "\n".join(json.dumps({"timestamp": 10 * i, "input_length": 8, "output_length": 2 + i}) for i in range(3))
    plan = {"arrivals": {"kind": "replay", "time_scale": 1}, "num_requests": 0}
    record = finished(client, order(plan=plan, trace=trace))
    assert record["state"] == "done"
    assert sorted(body["max_tokens"] for body in server.bodies)[1:] == [2, 3, 4]
    assert record["parts"][0]["result"]["plan"]["arrivals"]["file"] == "trace.jsonl"
    assert "/" not in json.dumps(record["parts"][0]["result"]["plan"])


def test_trace_line_that_is_wrong_is_named(client: httpx.Client) -> None:
    record = finished(client, order(plan={"arrivals": {"kind": "replay"}}, trace="{}\n"))
    assert record["state"] == "failed"
    assert record["error"].startswith("trace.jsonl, line 1")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"sides": [{"target": "http://127.0.0.1:1"}]}, "there is no target http://127.0.0.1:1"),
        ({"sides": [{"target": "service", "url": "http://x"}]}, "url"),
        ({"sides": []}, "length >= 1"),
        ({"plan": {"arrivals": {"kind": "replay", "file": "/etc/passwd"}}}, "`arrivals.file` can't be given"),
        ({"plan": {"arrivals": {"kind": "replay"}}}, "needs a `trace`"),
        ({"plan": {"prompt_tokens": {"kind": "file", "file": "/etc/passwd"}}}, "`prompt_tokens.file` can't be given"),
        ({"plan": {"output_tokens": {"kind": "file", "file": "/etc/passwd"}}}, "`output_tokens.file` can't be given"),
        ({"plan": {"arrivals": {"kind": "poisson", "rate": 0}}}, "rate"),
        ({"plan": {"num_requests": 0}}, "greater than 0"),
        ({"plan": {"api_key": "x"}}, "api_key"),
        ({"rounds": 99}, "<= 10"),
    ],
)
def test_order_that_is_wrong_is_refused_and_what_runs_goes_on(change: dict[str, Any], said: str) -> None:
    with timed_server(endless) as server, dashboard(server) as client:
        client.post(RUNS, json=order(plan={"num_requests": 0, "duration_s": LATE}))
        server.until(lambda: server.running == 2)
        answer = client.post(RUNS, json=order(**change))
        assert answer.status_code == 400
        assert said in answer.json()["error"]["message"]
        assert server.running == 2
        assert len(client.get(RUNS).json()["runs"]) == 1


def test_other_sites_can_neither_start_nor_stop(client: httpx.Client) -> None:
    cross = {"sec-fetch-site": "cross-site"}
    assert client.post(RUNS, json=order(), headers=cross).status_code == 403
    finished(client, order())
    assert client.delete(f"{RUNS}/load-1", headers=cross).status_code == 403
    assert client.get(f"{RUNS}/load-1").status_code == 200


def test_key_goes_to_the_target_and_into_no_result() -> None:
    with timed_server(quick) as server:
        app = create_app("http://127.0.0.1:9", targets=[Target("keyed", server.url, "K", "sk-secret")])
        with serving(app) as url, httpx.Client(base_url=url, timeout=20.0, trust_env=False) as client:
            finished(client, order(sides=[{"target": "keyed", "model": "m"}]))
            assert "sk-secret" not in client.get(f"{RUNS}/load-1/export.json").text
            assert "sk-secret" not in client.get("/").text


def test_export_holds_every_request_as_json_and_csv(client: httpx.Client) -> None:
    finished(client, order())
    whole = client.get(f"{RUNS}/load-1/export.json")
    assert whole.headers["content-disposition"] == 'attachment; filename="load-1.json"'
    requests = whole.json()["parts"][0]["result"]["requests"]
    assert len(requests) == 6
    table = client.get(f"{RUNS}/load-1/export.csv")
    assert table.headers["content-type"].startswith("text/csv")
    rows = list(csv.DictReader(table.text.splitlines()))
    assert [int(row["number"]) for row in rows] == [request["number"] for request in requests]
    assert {row["target"] for row in rows} == {"service"}
    assert {row["status"] for row in rows} == {"ok"}
    assert client.get(f"{RUNS}/load-1/export.exe").status_code == 404


def test_load_that_is_over_can_be_forgotten(client: httpx.Client) -> None:
    finished(client, order())
    assert client.delete(f"{RUNS}/load-1").status_code == 204
    for method, path in (("GET", ""), ("GET", "/live"), ("GET", "/export.csv"), ("DELETE", "")):
        assert client.request(method, f"{RUNS}/load-1{path}").status_code == 404


def test_loads_are_kept_in_the_state_directory_over_a_restart(server: TimedServer, tmp_path: Path) -> None:
    with dashboard(server, state_dir=tmp_path / "state") as client:
        first = finished(client, order(label="kept"))
        finished(client, order())
        client.delete(f"{RUNS}/load-2")
    (tmp_path / "state" / "load-9.json").write_text("{broken")
    with dashboard(server, state_dir=tmp_path / "state") as client:
        runs = client.get(RUNS).json()["runs"]
        assert [run["label"] for run in runs] == ["kept"]
        assert client.get(f"{RUNS}/load-1").json() == first
        assert client.post(RUNS, json=order()).json()["id"] == "load-2"


def test_load_that_is_forgotten_while_it_is_written_does_not_come_back(
    server: TimedServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writing, may_write = threading.Event(), threading.Event()
    save = LoadStore.save

    def slow_save(store: LoadStore, record: LoadRecord) -> None:
        writing.set()
        assert may_write.wait(10)
        save(store, record)

    monkeypatch.setattr(LoadStore, "save", slow_save)
    with dashboard(server, state_dir=tmp_path) as client, ThreadPoolExecutor(1) as pool:
        finished(client, order())
        assert writing.wait(10)
        forgetting = pool.submit(client.delete, f"{RUNS}/load-1")
        while client.get(RUNS).json()["runs"]:  # until it is on its way
            pass
        may_write.set()
        assert forgetting.result().status_code == 204
    assert list(tmp_path.iterdir()) == []


def test_only_so_many_loads_are_kept(server: TimedServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dashboard.load_runs.MAX_KEPT", 2)
    with dashboard(server, state_dir=tmp_path) as client:
        for _ in range(4):
            finished(client, order())
        assert [run["id"] for run in client.get(RUNS).json()["runs"]] == ["load-4", "load-3"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["load-3.json", "load-4.json"]
