"""The dashboard's server against a stand-in service, over real sockets."""

import asyncio
import json
import re
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from dashboard.forwarded import FORWARDED
from dashboard.server import create_app
from dashboard.tabs import ALL_TABS
from tests.support.loopback import serving
from tests.support.stub_service import MODEL, Stub

HERE = Path(__file__).resolve().parent
CHAT = {"model": MODEL, "messages": [{"role": "user", "content": "hi"}], "stream": True}


@pytest.fixture
def stub() -> Stub:
    return Stub(rate=0.0, past_s=20.0)


@contextmanager
def dashboard_of(service_url: str, **options: object) -> Iterator[httpx.Client]:
    app = create_app(service_url, **{"poll_interval_s": 0.05, **options})  # type: ignore[arg-type]
    with serving(app) as url, httpx.Client(base_url=url, timeout=10.0, trust_env=False) as client:
        yield client


@pytest.fixture
def client(stub: Stub) -> Iterator[httpx.Client]:
    with serving(stub.app()) as service_url, dashboard_of(service_url) as client:
        yield client


async def nothing() -> AsyncIterator[bytes]:
    """A body that has to be streamed, and is empty."""
    yield b""


def frames(response: httpx.Response) -> Iterator[dict[str, object]]:
    for line in response.iter_lines():
        if line.startswith("data: "):
            yield json.loads(line[6:])


def test_page_names_the_service_and_keeps_to_itself(client: httpx.Client) -> None:
    page = client.get("/")
    assert page.status_code == 200
    assert 'data-service-url="http://127.0.0.1:' in page.text
    assert 'role="tab"' in page.text
    policy = page.headers["content-security-policy"]
    assert "default-src 'self'" in policy
    assert "unsafe" not in policy
    assert page.headers["x-content-type-options"] == "nosniff"
    assert page.headers["x-frame-options"] == "DENY"
    module = client.get("/static/js/main.js")
    assert module.headers["content-type"].startswith("text/javascript")
    assert module.headers["cache-control"] == "no-cache"
    assert client.get("/static/js/main.js", headers={"if-none-match": module.headers["etag"]}).status_code == 304


def test_proxy_forwards_the_listed_routes(client: httpx.Client) -> None:
    paths = ("/health", "/ready", "/info", "/stats", "/metrics", "/v1/models")
    assert {path: client.get(f"/api{path}").status_code for path in paths} == dict.fromkeys(paths, 200)


def test_proxy_forwards_every_route_of_the_list_with_its_ids_and_query() -> None:
    asked: list[tuple[str, str]] = []

    def upstream(request: httpx.Request) -> httpx.Response:
        asked.append((request.method, request.url.raw_path.decode()))
        return httpx.Response(200, content=nothing())

    with dashboard_of("http://service", transport=httpx.MockTransport(upstream)) as client:
        for each in FORWARDED:
            path = each.path.replace("{request_id}", "req-1.a:b_c-0").replace("{trace_id}", "0af7651916cd43dd")
            body = {"json": {}} if each.method == "POST" else {}
            assert client.request(each.method, f"/api{path}", params={"since": 3}, **body).status_code == 200  # type: ignore[arg-type]
            assert asked.pop() == (each.method, f"{path}?since=3")


@pytest.mark.parametrize(
    "segment", ["%2e%2e", "%2e", "..%2fconfig", "a%2fb", "a%3fb=1", "a%23b", "%20", "a%00", "-", "x" * 200]
)
def test_proxy_takes_no_segment_for_an_id_that_a_url_could_read_otherwise(segment: str) -> None:
    asked: list[str] = []

    def upstream(request: httpx.Request) -> httpx.Response:
        asked.append(request.url.raw_path.decode())
        return httpx.Response(200, json={})

    with dashboard_of("http://service", transport=httpx.MockTransport(upstream)) as client:
        url = httpx.URL(client.base_url).copy_with(raw_path=f"/api/telemetry/requests/{segment}".encode())
        assert client.get(url).status_code == 404
        assert client.post(f"/api/telemetry/requests/{segment}/cancel", json={}).status_code == 404
    assert asked == []


def test_big_answer_is_passed_on_as_it_comes_with_its_file_name() -> None:
    gate = threading.Event()

    async def body() -> AsyncIterator[bytes]:
        yield b'{"schema": "pellucid-trace"}\n'
        await asyncio.to_thread(gate.wait, 5)
        yield b"{}\n"

    headers = {"content-type": "application/x-ndjson", "content-disposition": 'attachment; filename="t.jsonl"'}
    upstream = httpx.MockTransport(lambda request: httpx.Response(200, headers=headers, content=body()))
    with (
        dashboard_of("http://service", transport=upstream) as client,
        client.stream("GET", "/api/telemetry/kv/trace") as answer,
    ):
        chunks = answer.iter_raw()
        first = next(chunks)
        gate.set()
        assert first + b"".join(chunks) == b'{"schema": "pellucid-trace"}\n{}\n'
        assert answer.headers["content-disposition"] == headers["content-disposition"]


@pytest.mark.parametrize("content_type", ["application/x-ndjson", "text/event-stream"])
def test_answer_that_breaks_off_never_looks_complete(content_type: str) -> None:
    async def body() -> AsyncIterator[bytes]:
        yield b"id: a:1\ndata: []\n\n"
        raise httpx.ReadError("reset")

    headers = {"content-type": content_type}
    upstream = httpx.MockTransport(lambda request: httpx.Response(200, headers=headers, content=body()))
    with (
        dashboard_of("http://service", transport=upstream) as client,
        client.stream("GET", "/api/telemetry/kv/live") as answer,
    ):
        if content_type == "text/event-stream":
            assert b'"service_unavailable"' in b"".join(answer.iter_raw())
        else:
            with pytest.raises(httpx.RemoteProtocolError):
                b"".join(answer.iter_raw())


def test_place_in_a_stream_of_events_goes_upstream() -> None:
    seen: list[str | None] = []

    def upstream(request: httpx.Request) -> httpx.Response:
        seen.append(request.headers.get("last-event-id"))
        return httpx.Response(200, headers={"content-type": "text/event-stream"}, content=nothing())

    with dashboard_of("http://service", transport=httpx.MockTransport(upstream)) as client:
        client.get("/api/telemetry/kv/live", headers={"last-event-id": "life-1:7"})
    assert seen == ["life-1:7"]


def test_proxy_forwards_nothing_else(client: httpx.Client) -> None:
    for path in (
        "/api/secret", "/api//secret", "/api/stats/../secret", "/api/http://127.0.0.1/secret", "/api/%2e%2e/secret",
        "/api/stats/", "/api/STATS", "/api/v1/chat/completions", "/api/admin/drain",
    ):  # fmt: skip
        answer = client.get(path)
        assert "not for the dashboard" not in answer.text, path
        assert answer.status_code in (404, 405, 307), path


def test_page_has_the_tabs_whose_panels_are_there_in_their_order(client: httpx.Client) -> None:
    shown = re.findall(r'role="tab" id="tab-(\w+)"', client.get("/").text)
    templates = HERE.parents[1] / "dashboard" / "templates"
    assert shown == [tab.name for tab in ALL_TABS if (templates / f"{tab.name}.html").is_file()]
    assert shown[0] == "live"
    for name in shown:
        assert client.get(f"/static/js/{name}/tab.js").status_code == 200, name
    for stylesheet in re.findall(r'href="(static/css/[^"]+)"', client.get("/").text):
        assert client.get(f"/{stylesheet}").status_code == 200, stylesheet


def test_proxy_keeps_the_query_of_a_get(client: httpx.Client) -> None:
    rows = client.get("/api/stats", params={"history_s": 3}).json()["history"]["t"]
    assert len(rows) == 3


def test_chat_is_streamed_byte_for_byte_as_it_comes(client: httpx.Client, stub: Stub) -> None:
    stub.delay_s = 0.05
    with client.stream("POST", "/api/v1/chat/completions", json=CHAT) as answer:
        chunks = list(answer.iter_raw())
        assert answer.headers["content-type"].startswith("text/event-stream")
        assert answer.headers["x-request-id"] == "r-1"
    assert len(chunks) > 10, "the proxy collected the stream before passing it on"
    assert b"".join(chunks).endswith(b"data: [DONE]\n\n")
    assert stub.chats == [CHAT]


def test_client_that_leaves_ends_the_upstream_request(client: httpx.Client, stub: Stub) -> None:
    forever = {**CHAT, "messages": [{"role": "user", "content": "forever"}], "max_tokens": 100_000}
    with client.stream("POST", "/api/v1/chat/completions", json=forever) as answer:
        chunks = answer.iter_raw()  # held: an iterator that is dropped closes its connection
        next(chunks)
        assert not stub.left.is_set()
    assert stub.left.wait(5)


def test_refusal_of_the_service_passes_through(client: httpx.Client) -> None:
    answer = client.post("/api/v1/chat/completions", json={"messages": [{"role": "user", "content": "refuse"}]})
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "max_tokens"


def test_post_from_another_site_or_in_another_form_is_refused(client: httpx.Client, stub: Stub) -> None:
    path = "/api/v1/chat/completions"
    assert client.post(path, json=CHAT, headers={"sec-fetch-site": "cross-site"}).status_code == 403
    assert client.post(path, content="{}", headers={"content-type": "text/plain"}).status_code == 415
    assert client.post(path, content=b" " * (5 << 20), headers={"content-type": "application/json"}).status_code == 413
    assert stub.chats == []


def test_service_that_is_down_gives_502_in_the_error_form() -> None:
    with dashboard_of("http://127.0.0.1:9") as client:
        for answer in (client.get("/api/stats"), client.post("/api/v1/chat/completions", json=CHAT)):
            assert answer.status_code == 502
            assert answer.json()["error"]["type"] == "service_unavailable"
        assert client.get("/healthz").json() == {"status": "ok", "watchers": 0}


def test_api_key_goes_to_the_service_and_not_to_the_browser() -> None:
    seen: list[str] = []

    def upstream(request: httpx.Request) -> httpx.Response:
        seen.append(request.headers["authorization"])
        return httpx.Response(200, json={})

    options = {"api_key": "s3cret", "transport": httpx.MockTransport(upstream)}
    with dashboard_of("http://127.0.0.1:9", **options) as client:
        assert client.get("/api/info").status_code == 200
        assert "s3cret" not in client.get("/").text
    assert seen == ["Bearer s3cret"]


def test_live_feed_gives_history_first_and_then_only_new_rows(client: httpx.Client) -> None:
    with client.stream("GET", "/live") as live:
        feed = frames(live)
        first = next(feed)
        assert first["connected"] is True
        assert first["ready"] == {"status": 200, "body": {"status": "ready"}}
        rows = first["stats"]["history"]["t"]  # type: ignore[index]
        assert len(rows) >= 18
        later: list[int] = []
        while not later:
            later = next(feed)["stats"]["history"]["t"]  # type: ignore[index]
        assert min(later) > max(rows)


def test_live_feed_polls_once_for_all_watchers_and_not_at_all_for_none(client: httpx.Client, stub: Stub) -> None:
    assert stub.num_stats == 0
    with client.stream("GET", "/live") as one, client.stream("GET", "/live") as other:
        both = zip(frames(one), frames(other), strict=False)
        times = [(a["stats"]["t"], b["stats"]["t"]) for (a, b), _ in zip(both, range(8), strict=False)]  # type: ignore[index]
        assert client.get("/healthz").json()["watchers"] == 2
        assert stub.num_stats <= 14
    assert len({a for a, _ in times} & {b for _, b in times}) >= 6, "two watchers are shown different polls"
    stub.asked.clear()
    while client.get("/healthz").json()["watchers"]:
        pass
    stub.asked.clear()
    assert not stub.asked.wait(0.3), "the service is polled although nobody watches"


def test_live_feed_says_when_the_service_is_down_and_recovers(stub: Stub) -> None:
    reachable = threading.Event()

    async def upstream(request: httpx.Request) -> httpx.Response:
        if not reachable.is_set():
            raise httpx.ConnectError("refused")
        async with httpx.AsyncClient(transport=httpx.ASGITransport(stub.app())) as inner:
            answer = await inner.request(request.method, request.url)
        return httpx.Response(answer.status_code, content=answer.content)

    with (
        dashboard_of("http://service", transport=httpx.MockTransport(upstream)) as client,
        client.stream("GET", "/live") as live,
    ):
        feed = frames(live)
        assert next(feed) == {"connected": False, "error": "refused", "ready": None, "stats": None}
        reachable.set()
        assert any(frame["connected"] for frame, _ in zip(feed, range(100), strict=False))
        stub.broken = True
        broken = next(frame for frame, _ in zip(feed, range(100), strict=False) if not frame["connected"])
        assert broken["error"] == "GET /stats answered 500"


def test_live_feed_refuses_statistics_in_another_form() -> None:
    answer = httpx.MockTransport(lambda request: httpx.Response(200, json={"schema": "pellucid-stats", "version": 2}))
    with dashboard_of("http://service", transport=answer) as client, client.stream("GET", "/live") as live:
        assert "a form that this dashboard doesn't know" in str(next(frames(live))["error"])


def test_live_feed_passes_on_why_the_service_is_not_ready(client: httpx.Client, stub: Stub) -> None:
    stub.state, stub.reason = "loading", "loading weights"
    with client.stream("GET", "/live") as live:
        ready = next(frames(live))["ready"]
    assert ready["status"] == 503  # type: ignore[index]
    assert ready["body"]["error"]["message"] == "loading weights"  # type: ignore[index]
