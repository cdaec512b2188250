"""Other servers: which may be named, and that nothing else can be reached through them."""

import http.client
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from dashboard.main import parse_args
from dashboard.server import create_app
from dashboard.targets import Target, TargetError, make_targets, server_address
from tests.support.loopback import serving
from tests.support.stub_service import Stub

KEYS = {"OTHER_KEY": "sk-other", "BROKEN_KEY": "a\r\nx: y"}


class Inside:
    """A server that nobody listed; it counts who comes."""

    def __init__(self) -> None:
        self.visits: list[str] = []

    def app(self) -> Starlette:
        async def anything(request: Request) -> Response:
            self.visits.append(request.url.path)
            return JSONResponse({"secret": "of the inside"})

        return Starlette(routes=[Route("/{path:path}", anything, methods=["GET", "POST"])])


class Echo:
    """A listed server: it keeps the headers it was sent, and redirects where it is told to."""

    def __init__(self, elsewhere: str) -> None:
        self.elsewhere = elsewhere
        self.headers: list[list[tuple[str, str]]] = []

    def app(self) -> Starlette:
        async def models(request: Request) -> Response:
            self.headers.append([(name.decode(), value.decode()) for name, value in request.headers.raw])
            return JSONResponse(
                {"object": "list", "data": [{"id": "echo"}]}, headers={"set-cookie": "a=b", "x-request-id": "r"}
            )

        async def info(request: Request) -> Response:
            return RedirectResponse(f"{self.elsewhere}/info")

        async def chat(request: Request) -> Response:
            self.headers.append([(name.decode(), value.decode()) for name, value in request.headers.raw])
            return RedirectResponse(f"{self.elsewhere}/v1/chat/completions", 307)

        return Starlette(
            routes=[
                Route("/v1/models", models),
                Route("/info", info),
                Route("/v1/chat/completions", chat, methods=["POST"]),
                Route("/secret", models),
            ]
        )


@contextmanager
def dashboard_with(*targets: Target) -> Iterator[httpx.Client]:
    app = create_app("http://127.0.0.1:9", targets=targets)
    with serving(app) as url, httpx.Client(base_url=url, timeout=10.0, trust_env=False) as client:
        yield client


@pytest.fixture
def inside() -> Inside:
    return Inside()


@pytest.fixture
def inside_url(inside: Inside) -> Iterator[str]:
    with serving(inside.app()) as url:
        yield url


@pytest.fixture
def echo(inside_url: str) -> Echo:
    return Echo(inside_url)


@pytest.fixture
def client(echo: Echo) -> Iterator[httpx.Client]:
    with serving(echo.app()) as url, dashboard_with(Target("other", url, "OTHER_KEY", "sk-other")) as client:
        yield client


def test_listed_target_answers_under_its_name_and_the_page_names_it_without_its_key(client: httpx.Client) -> None:
    assert client.get("/api/targets/other/v1/models").json()["data"] == [{"id": "echo"}]
    page = client.get("/").text
    assert "other" in page
    assert "OTHER_KEY" in page
    assert "sk-other" not in page


def raw_get(client: httpx.Client, path: str) -> tuple[int, bytes]:
    """Send a path exactly as it is: httpx would tidy it up first."""
    parts = urlsplit(str(client.base_url))
    connection = http.client.HTTPConnection(str(parts.hostname), parts.port, timeout=10)
    connection.putrequest("GET", path, skip_host=False)
    connection.endheaders()
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    return answer.status, body


@pytest.mark.parametrize(
    "path",
    [
        "/api/targets/unlisted/v1/models",
        "/api/targets/127.0.0.1/v1/models",
        "/api/targets/http:%2f%2f127.0.0.1:9/v1/models",
        "/api/targets//v1/models",
        "/api/targets/other@127.0.0.1/v1/models",
        "/api/targets/other/secret",
        "/api/targets/other/v1/models/../../secret",
        "/api/targets/other/%2e%2e/secret",
        "/api/targets/other/v1%2f..%2fsecret",
        "/api/targets/other/v1/models%00",
        "/api/targets/other//secret",
        "/api/targets/other/..%5csecret",
        "/api/targets/other/v1/models/http://127.0.0.1/",
        "/api/targets/OTHER/v1/models",
        "/api/targets/other/stats",
        "/api/targets/other/telemetry/requests",
    ],
)
def test_unlisted_host_or_path_reaches_no_server(client: httpx.Client, echo: Echo, inside: Inside, path: str) -> None:
    status, body = raw_get(client, path)
    assert status in (307, 404, 405), path
    assert b"echo" not in body
    assert echo.headers == []
    assert inside.visits == []


def test_query_names_no_other_server(client: httpx.Client, echo: Echo, inside: Inside, inside_url: str) -> None:
    query = {"url": inside_url, "base_url": inside_url, "target": "unlisted"}
    assert client.get("/api/targets/other/v1/models", params=query).status_code == 200
    assert len(echo.headers) == 1
    assert inside.visits == []


def test_redirect_is_an_error_that_names_no_place_and_is_not_followed(
    client: httpx.Client, inside: Inside, inside_url: str
) -> None:
    for answer in (
        client.get("/api/targets/other/info"),
        client.post("/api/targets/other/v1/chat/completions", json={"messages": []}),
    ):
        assert answer.status_code == 502
        assert "redirect" in answer.json()["error"]["message"]
        assert "location" not in answer.headers
        assert inside_url not in answer.text
    assert inside.visits == []


def test_only_named_headers_travel_and_only_the_targets_own_key(client: httpx.Client, echo: Echo) -> None:
    hostile = {
        "authorization": "Bearer stolen",
        "cookie": "session=1",
        "host": "inside.localhost",
        "x-forwarded-for": "10.0.0.1",
        "x-forwarded-host": "inside.example",
        "forwarded": "for=10.0.0.1",
        "proxy-authorization": "Basic x",
        "x-http-method-override": "DELETE",
        "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    }
    answer = client.get("/api/targets/other/v1/models", headers=hostile)
    sent = dict(echo.headers[0])
    assert sent["authorization"] == "Bearer sk-other"
    assert sent["traceparent"] == hostile["traceparent"]
    assert sent["host"].startswith("127.0.0.1:")
    expected = {"host", "accept", "accept-encoding", "authorization", "connection", "traceparent", "user-agent"}
    assert set(sent) == expected
    assert "set-cookie" not in answer.headers
    assert answer.headers["x-request-id"] == "r"


@pytest.mark.parametrize("name", ["accept", "traceparent", "content-type"])
def test_header_value_with_a_line_break_never_becomes_a_second_header(
    client: httpx.Client, echo: Echo, name: str
) -> None:
    parts = urlsplit(str(client.base_url))
    connection = http.client.HTTPConnection(str(parts.hostname), parts.port, timeout=10)
    connection.putrequest("GET", "/api/targets/other/v1/models")
    connection._buffer.append(f"{name}: a\rx-smuggled: 1".encode())  # type: ignore[attr-defined]
    connection.endheaders()
    assert connection.getresponse().status in (200, 400, 502)
    connection.close()
    assert all("x-smuggled" not in dict(headers) for headers in echo.headers)


def test_post_to_a_target_from_another_site_is_refused(client: httpx.Client, echo: Echo) -> None:
    path = "/api/targets/other/v1/chat/completions"
    assert client.post(path, json={}, headers={"sec-fetch-site": "cross-site"}).status_code == 403
    assert client.post(path, content="{}", headers={"content-type": "text/plain"}).status_code == 415
    assert echo.headers == []


def test_key_of_one_target_never_goes_to_another() -> None:
    seen: list[tuple[str, str | None]] = []

    def upstream(request: httpx.Request) -> httpx.Response:
        seen.append((request.url.host, request.headers.get("authorization")))
        return httpx.Response(200, json={})

    targets = (Target("keyed", "http://keyed", "K", "sk-keyed"), Target("open", "http://open"))
    app = create_app("http://own", api_key="sk-own", targets=targets, transport=httpx.MockTransport(upstream))
    with serving(app) as url, httpx.Client(base_url=url, trust_env=False) as client:
        for name in ("service", "keyed", "open"):
            client.get(f"/api/targets/{name}/v1/models")
    assert seen == [("own", "Bearer sk-own"), ("keyed", "Bearer sk-keyed"), ("open", None)]


def test_own_service_is_a_target_too() -> None:
    stub = Stub(rate=0.0, past_s=5.0)
    with (
        serving(stub.app()) as service_url,
        serving(create_app(service_url)) as url,
        httpx.Client(base_url=url, trust_env=False) as client,
    ):
        assert "chat_fields" in client.get("/api/targets/service/info").json()
        with client.stream(
            "POST", "/api/targets/service/v1/chat/completions", json={"messages": [{"role": "user", "content": "hi"}]}
        ) as answer:
            assert answer.read().endswith(b"data: [DONE]\n\n")


def test_targets_are_read_from_arguments_with_keys_from_the_environment() -> None:
    targets = make_targets(["a=http://h:1/v1/", "b-2=https://x.org/base"], ["b-2=OTHER_KEY"], KEYS)
    assert targets == (Target("a", "http://h:1"), Target("b-2", "https://x.org/base", "OTHER_KEY", "sk-other"))
    assert "sk-other" not in repr(targets)


@pytest.mark.parametrize(
    ("urls", "keys", "said"),
    [
        (["http://h"], [], "must be name=value"),
        (["A B=http://h"], [], "must be name=value"),
        (["../x=http://h"], [], "must be name=value"),
        (["a=ftp://h"], [], "must be an http(s) URL"),
        (["a=file:///etc/passwd"], [], "must be an http(s) URL"),
        (["a=http://h:99999"], [], "must be an http(s) URL"),
        (["a=http://h\r\nx: y"], [], "must be an http(s) URL"),
        (["a=http://user:pass@h"], [], "no user, query or fragment"),
        (["a=http://h?x=1"], [], "no user, query or fragment"),
        (["a=http://h", "a=http://i"], [], "names must differ"),
        (["service=http://h"], [], "can't be `service`"),
        (["a=http://h"], ["b=OTHER_KEY"], "must name a target, got b"),
        (["a=http://h"], ["a=MISSING"], "environment variable that holds a key, got MISSING"),
        (["a=http://h"], ["a=BROKEN_KEY"], "environment variable that holds a key"),
    ],
)
def test_target_argument_that_is_wrong_is_refused(urls: list[str], keys: list[str], said: str) -> None:
    with pytest.raises(TargetError, match=r".") as refused:
        make_targets(urls, keys, KEYS)
    assert said in str(refused.value)


def test_wrong_target_never_repeats_a_password(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_info:
        parse_args(["--target", "a=http://user:s3cret@h"])
    assert exit_info.value.code == 2
    assert "s3cret" not in capsys.readouterr().err


def test_server_address_is_kept_without_v1() -> None:
    assert server_address("--x", "http://[::1]:8/v1") == "http://[::1]:8"
