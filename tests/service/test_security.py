"""Keys, origins, CORS: closed unless it is said otherwise."""

from typing import Any

import httpx
import pytest

from service.app import ROUTE_TEMPLATES
from service.settings import ServiceSettings
from tests.support.http_calls import CHAT, chat, error_of, post
from tests.support.scripted_service import Served, emits, serve

KEYS = frozenset({"alpha-key", "beta-key"})
PUBLIC = {"/health", "/ready"}


@pytest.fixture(scope="module")
def locked() -> Any:
    with serve(script=emits(b"ok"), settings=ServiceSettings(api_keys=KEYS)) as served:
        yield served


@pytest.fixture(scope="module")
def opened() -> Any:
    with serve(script=emits(b"ok"), settings=ServiceSettings(cors_origins=("http://app.example",))) as served:
        yield served


@pytest.fixture(scope="module")
def plain() -> Any:
    with serve(script=emits(b"ok")) as served:
        yield served


@pytest.mark.parametrize("path", ROUTE_TEMPLATES)
@pytest.mark.parametrize("method", ["GET", "POST", "HEAD", "OPTIONS"])
def test_every_route_but_the_public_ones_needs_a_key(locked: Served, method: str, path: str) -> None:
    path = path.replace("{model_id:path}", "scripted").replace("{request_id}", "r")
    status = httpx.request(method, locked.url + path, timeout=10).status_code
    if path in PUBLIC:
        assert status in (200, 405)
    else:
        assert status == 401


@pytest.mark.parametrize(
    "path",
    [
        "//v1/models",
        "/V1/models",
        "/%76%31/models",
        "/v1/models/",
        "/v1/./models",
        "/health/../v1/models",
        "/health/",
        "/healthz",
        "/ready/x",
        "/nowhere",
        "/docs",
        "/openapi.json",
    ],
)
def test_other_spellings_of_a_path_need_a_key_too(locked: Served, path: str) -> None:
    with locked.connection() as connection:
        connection.sock.sendall(f"GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n".encode())
        assert connection.sock.makefile("rb").readline().split()[1] == b"401"


@pytest.mark.parametrize(
    "authorization", ["", "Bearer", "Bearer wrong", "alpha-key", "Basic alpha-key", "Bearer alpha-key2"]
)
def test_wrong_key_is_401_in_our_form(locked: Served, authorization: str) -> None:
    headers = {"authorization": authorization} if authorization else {}
    response = post(locked.url, CHAT, chat(), headers=headers)
    assert response.status_code == 401
    assert response.headers["www-authenticate"] == "Bearer"
    assert error_of(response)["type"] == "authentication_error"


@pytest.mark.parametrize("key", sorted(KEYS))
@pytest.mark.parametrize("scheme", ["Bearer", "bearer"])
def test_any_of_the_keys_opens(locked: Served, key: str, scheme: str) -> None:
    assert post(locked.url, CHAT, chat(), headers={"authorization": f"{scheme} {key}"}).status_code == 200


def test_keys_are_shown_nowhere(locked: Served) -> None:
    assert "alpha-key" not in repr(locked.services.settings)
    answer = locked.get("/info", headers={"authorization": "Bearer alpha-key"})
    assert answer.status_code == 200
    assert "alpha-key" not in answer.text


def test_cors_is_closed_by_default(plain: Served) -> None:
    response = plain.get("/v1/models", headers={"origin": "http://evil.example"})
    assert "access-control-allow-origin" not in response.headers


@pytest.mark.parametrize("path", [CHAT, "/admin/drain", "/admin/reset_prefix_cache", "/tokenize"])
def test_post_of_a_foreign_page_is_refused(plain: Served, path: str) -> None:
    response = post(plain.url, path, chat(), headers={"origin": "http://evil.example"})
    assert response.status_code == 403
    assert error_of(response)["type"] == "permission_error"
    assert plain.get("/ready").status_code == 200


def test_post_of_our_own_page_is_served(plain: Served) -> None:
    assert post(plain.url, CHAT, chat(), headers={"origin": plain.url}).status_code == 200


def test_listed_origin_may_call_and_read_errors(opened: Served) -> None:
    origin = {"origin": "http://app.example"}
    preflight = httpx.options(
        opened.url + CHAT,
        headers={**origin, "access-control-request-method": "POST", "access-control-request-headers": "content-type"},
    )
    assert preflight.status_code == 200
    assert preflight.headers["access-control-allow-origin"] == "http://app.example"
    good, bad = post(opened.url, CHAT, chat(), headers=origin), post(opened.url, CHAT, chat(n=0), headers=origin)
    assert (good.status_code, bad.status_code) == (200, 400)
    for response in (good, bad):
        assert response.headers["access-control-allow-origin"] == "http://app.example"
        assert "x-request-id" in response.headers["access-control-expose-headers"].lower()
    assert "access-control-allow-origin" not in opened.get("/info", headers={"origin": "http://evil.example"}).headers
