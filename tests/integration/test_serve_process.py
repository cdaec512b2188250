"""`pellucid serve` as people run it: a process, its signals, its exit codes."""

import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from tests.support.gguf_bytes import tiny_llama
from tests.support.http_calls import CHAT, chat, error_of, finish_reasons, frames, post
from tests.support.serve_process import ROOT, TIMEOUT_S, ServeProcess

SLOW = ("--executor", "reference")  # makes a long answer last
LONG = {"ignore_eos": True, "stream": True}


@contextmanager
def serving(*flags: str) -> Iterator[ServeProcess]:
    served = ServeProcess("--model", "random:tiny", "--threads", "1", "--max-num-seqs", "4", *flags)
    try:
        served.wait_ready()
        yield served
    finally:
        served.close()


def fails(*flags: str) -> tuple[int, list[str]]:
    """Run a serve that must end by itself; return its exit code and the lines it wrote to stderr."""
    done = subprocess.run(
        [sys.executable, "-m", "service.cli", "serve", "--log-level", "warning", *flags],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.stdout == ""
    return done.returncode, done.stderr.splitlines()


@pytest.mark.slow
def test_serve_answers_and_ends_with_zero_after_the_running_stream() -> None:
    with serving("--grace", "60") as served:
        assert post(served.url, CHAT, chat(max_tokens=3)).json()["usage"]["completion_tokens"] == 3
        assert httpx.get(served.url + "/info").json()["max_choices"] == 4 + 7
        with httpx.stream("POST", served.url + CHAT, json=chat(max_tokens=600, **LONG), timeout=TIMEOUT_S) as answer:
            text = answer.iter_text()
            first = next(text)
            served.process.send_signal(signal.SIGTERM)
            ready = wait_for_503(served)
            assert "shutting down" in error_of(ready)["message"]
            payloads = frames(first + "".join(text))
        assert served.wait() == 0, served.lines
    assert finish_reasons(payloads) == {0: ["length"]}
    assert payloads[-1] == "[DONE]"
    assert not [line for line in served.lines if "Traceback" in line or " ERROR " in line], served.lines


def wait_for_503(served: ServeProcess) -> httpx.Response:
    for _ in range(1000):
        response = httpx.get(served.url + "/ready", timeout=TIMEOUT_S)
        if response.status_code == 503:
            return response
    return pytest.fail("ready all the way")


@pytest.mark.slow
def test_serve_cuts_a_stream_after_the_grace_period_with_an_error_and_ends_with_zero() -> None:
    with serving("--grace", "0.2", *SLOW) as served:
        with httpx.stream("POST", served.url + CHAT, json=chat(max_tokens=2000, **LONG), timeout=TIMEOUT_S) as answer:
            text = answer.iter_text()
            first = next(text)
            served.process.send_signal(signal.SIGINT)
            payloads = frames(first + "".join(text))
        assert served.wait() == 0, served.lines
    assert payloads[-1]["error"]["type"] == "service_unavailable"
    assert finish_reasons(payloads[:-1]) == {}


@pytest.mark.slow
def test_serve_ends_at_once_when_it_is_told_twice() -> None:
    body = chat(max_tokens=2000, **LONG)
    with (
        serving("--grace", "60", *SLOW) as served,
        httpx.stream("POST", served.url + CHAT, json=body, timeout=TIMEOUT_S) as answer,
    ):
        text = answer.iter_text()
        assert next(text)
        served.process.send_signal(signal.SIGTERM)
        wait_for_503(served)
        served.process.send_signal(signal.SIGTERM)
        assert served.wait() == 128 + signal.SIGTERM


def test_model_that_can_not_be_loaded_is_one_line_and_exit_code_two(tmp_path: Path) -> None:
    whole = tiny_llama().encode()
    path = tmp_path / "truncated.gguf"
    path.write_bytes(whole[: len(whole) // 2])
    code, lines = fails("--model", str(path))
    assert code == 2
    assert len(lines) == 1, lines
    assert lines[0].startswith("error: ")


def test_busy_port_is_one_line_and_exit_code_one() -> None:
    with socket.create_server(("127.0.0.1", 0)) as busy:
        code, lines = fails("--model", "random:tiny", "--port", str(busy.getsockname()[1]))
    assert code == 1
    assert len(lines) == 1
    assert "can't listen on 127.0.0.1" in lines[0]
