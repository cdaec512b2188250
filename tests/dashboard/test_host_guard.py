"""Who may name this server: a page of another site whose name leads here (DNS rebinding) must read nothing."""

import httpx
import pytest

from dashboard.host_guard import HostRule, host_rule
from dashboard.main import parse_args
from dashboard.server import create_app
from tests.support.loopback import serving
from tests.support.stub_service import Stub

FOREIGN = "rebound.example:3100"


def test_request_under_another_sites_name_is_refused_on_every_route_and_reaches_no_server() -> None:
    stub = Stub(rate=0.0, past_s=5.0)
    with serving(stub.app()) as service_url, serving(create_app(service_url)) as url:
        with httpx.Client(base_url=url, trust_env=False, headers={"host": FOREIGN}) as client:
            for path in ("/", "/live", "/healthz", "/api/stats", "/api/targets/service/info", "/static/js/main.js"):
                answer = client.get(path)
                assert answer.status_code == 421, path
                assert answer.headers["x-content-type-options"] == "nosniff"
            body = {"messages": [{"role": "user", "content": "hi"}]}
            assert client.post("/api/v1/chat/completions", json=body).status_code == 421
        assert stub.chats == []
        assert httpx.get(f"{url}/api/stats", trust_env=False).status_code == 200


@pytest.mark.parametrize(
    "host",
    ["localhost", "LOCALHOST:3100", "localhost.:3100", "a.localhost", "127.0.0.1:3100", "127.8.0.1", "[::1]:3100"],
)
def test_names_of_this_machine_are_taken(host: str) -> None:
    assert host_rule("127.0.0.1", ()).allows(host)


@pytest.mark.parametrize(
    "host",
    [
        "",
        "rebound.example",
        "localhost.rebound.example",
        "127.0.0.1.rebound.example",
        "notlocalhost",
        "192.168.0.7",
        "0.0.0.0",
        "[::2]",
        "::1",
        "localhost:",
        "localhost:3100:1",
        "user@localhost",
        "localhost/",
        "localhost,rebound.example",
    ],
)
def test_other_names_and_malformed_ones_are_not(host: str) -> None:
    assert not host_rule("127.0.0.1", ()).allows(host)


def test_server_on_all_addresses_takes_any_name_until_it_is_told_its_names() -> None:
    assert host_rule("0.0.0.0", ()).allows("box.lan:3100")
    told = host_rule("0.0.0.0", ["Box.lan", "192.168.0.7", "[fd00::7]"])
    for host in ("box.lan:3100", "192.168.0.7", "[fd00::7]:3100", "localhost:3100"):
        assert told.allows(host), host
    assert not told.allows("rebound.example")


def test_bound_name_is_one_of_its_names() -> None:
    assert host_rule("box.lan", ["other.lan"]).allows("box.lan:3100")


def test_allowed_host_is_read_from_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    args = parse_args(["--allowed-host", "box.lan", "--allowed-host", "other.lan"])
    assert args.hosts == HostRule(frozenset({"127.0.0.1", "box.lan", "other.lan"}))
    with pytest.raises(SystemExit):
        parse_args(["--allowed-host", "http://box.lan"])
    assert "`--allowed-host` must be a host name" in capsys.readouterr().err
