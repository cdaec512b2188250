"""The dashboard's process: arguments, signals, exit codes."""

import json
import signal
import socket
import subprocess
import sys
from contextlib import AbstractContextManager
from pathlib import Path

import httpx
import pytest

from dashboard.main import first_key, main
from tests.support.dashboard_process import dashboard_process
from tests.support.loopback import serving
from tests.support.stub_service import Stub

ROOT = Path(__file__).resolve().parents[2]


def process(*arguments: str) -> AbstractContextManager[tuple[subprocess.Popen[str], str]]:
    return dashboard_process("--service-url", "http://127.0.0.1:9", *arguments)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_closes_an_open_event_stream_at_once_and_exits_with_0(number: signal.Signals) -> None:
    with process() as (child, url), httpx.Client(trust_env=False, timeout=10.0) as client:
        with client.stream("GET", f"{url}/live") as live:
            lines = live.iter_lines()
            assert next(lines) == "retry: 1000"
            child.send_signal(number)
            assert list(lines)[-1] == "", "the stream was cut in the middle of an event"
        assert child.wait(2) == 0


def test_signal_ends_a_running_chat_with_an_error_event_and_a_clean_log() -> None:
    stub = Stub(rate=0.0, past_s=5.0)
    body = {"messages": [{"role": "user", "content": "forever"}], "max_tokens": 100_000}
    with (
        serving(stub.app()) as service_url,
        process("--service-url", service_url) as (child, url),
        httpx.stream("POST", f"{url}/api/v1/chat/completions", json=body, trust_env=False) as answer,
    ):
        lines = answer.iter_lines()
        next(lines)
        child.send_signal(signal.SIGTERM)
        last = [line for line in lines if line][-1]
        assert json.loads(last.removeprefix("data: "))["error"]["message"] == "the dashboard is shutting down"
        assert child.wait(2) == 0
        assert child.stderr is not None
        assert child.stderr.read() == ""
        assert stub.left.wait(5)


def test_signal_ends_a_running_race_and_its_requests() -> None:
    stub = Stub(rate=0.0, past_s=5.0)
    request = {"messages": [{"role": "user", "content": "forever"}], "max_tokens": 100_000}
    body = {"target": "service", "request": request, "lanes": 4, "modes": ["concurrent"]}
    with (
        serving(stub.app()) as service_url,
        process("--service-url", service_url) as (child, url),
        httpx.stream("POST", f"{url}/api/race", json=body, trust_env=False) as answer,
    ):
        lines = answer.iter_lines()
        assert any('"text"' in line for line in lines)
        child.send_signal(signal.SIGTERM)
        assert not any("round_end" in line for line in lines)
        assert child.wait(2) == 0
        assert child.stderr is not None
        assert child.stderr.read() == ""
        assert stub.left.wait(5)


def test_busy_port_is_one_line_and_exit_code_1() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        command = [sys.executable, "-m", "dashboard.main", "--port", str(taken.getsockname()[1])]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=20, check=False)
    assert done.returncode == 1
    assert "address already in use" in done.stderr.lower()
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--service-url", "ftp://x"], "`--service-url` must be an http(s) URL, got ftp://x"),
        (["--service-url", "localhost:8100"], "`--service-url` must be an http(s) URL"),
        (["--port", "70000"], "`--port` must be in 0..65535, got 70000"),
        (["--api-key-file", "/no/such/file"], "`--api-key-file` must be a file"),
    ],
)
def test_bad_argument_is_named_and_ends_with_exit_code_2(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as exit_info:
        main(arguments)
    assert exit_info.value.code == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "key"), [("# of the team\n\nsk-one\nsk-two\n", "sk-one"), ("sk-one", "sk-one"), ("# none\n", "")]
)
def test_first_key_of_the_services_key_file_is_sent(tmp_path: Path, text: str, key: str) -> None:
    path = tmp_path / "keys.txt"
    path.write_text(text)
    assert first_key(path) == key
