"""loadtest/locustfile.py, run headless by Locust itself against servers with known answers."""

import functools
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.support.scripted_service import emits, serve
from tests.support.timed_server import Refusal, Script, at, content, finish, steady, timed_server, usage

LOCUSTFILE = Path(__file__).resolve().parents[2] / "loadtest" / "locustfile.py"


def locust(url: str, *flags: str, wait: Callable[[], None]) -> tuple[int, dict[str, Any]]:
    """Run two users until `wait` returns; give the exit code and the rows of the statistics by name."""
    command = [sys.executable, "-m", "locust", "-f", str(LOCUSTFILE), "--host", url, "--headless", "--json"]
    process = subprocess.Popen(
        [*command, "-u", "2", "-r", "2", "-t", "60s", "--loglevel", "ERROR", *flags],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        wait()
    finally:
        process.terminate()  # it ends as it does after its time
        out, err = process.communicate(timeout=30)
    assert out, err
    return process.returncode, {row["name"]: row for row in json.loads(out)}


def test_locust_users_read_whole_answers_of_the_real_service() -> None:
    with serve(script=emits(b"hello world")) as served:
        recorder = served.services.recorder
        wait = functools.partial(served.until, lambda: recorder.stats()["counters"]["requests_finished"] >= 8)
        code, rows = locust(served.url, "--max-tokens", "6", wait=wait)
    assert code == 0
    assert {"answer", "TTFT", "ITL", "head", "/v1/models"} <= rows.keys()
    answers = rows["answer"]
    assert answers["num_failures"] == 0
    assert answers["num_requests"] == rows["TTFT"]["num_requests"] >= 4
    assert answers["total_content_length"] == 6 * answers["num_requests"]


def test_locust_known_stream_is_measured_from_content_to_finish() -> None:
    """As in test_load_run.py: role chunk, comment and usage chunk are neither the first token nor the end."""
    events = [*steady(1)[:1], at(0.05, b": wait\n\n"), at(0.2, content("two tokens")), at(0.4, finish())]
    with timed_server(lambda number, body: [*events, at(0.5, usage(2)), at(0.5, b"data: [DONE]\n\n")]) as server:
        code, rows = locust(
            server.url, "--served-model", "m", wait=lambda: server.until(lambda: len(server.bodies) >= 6)
        )
    assert code == 0
    assert 195 <= rows["TTFT"]["min_response_time"] <= 350
    assert 395 <= rows["answer"]["min_response_time"] <= 600
    assert 100 <= rows["ITL"]["min_response_time"] <= 350
    assert rows["answer"]["total_content_length"] == 2 * rows["answer"]["num_requests"]
    assert "/v1/models" not in rows


def test_locust_answers_that_are_not_whole_are_failures() -> None:
    def script(number: int, body: Any) -> Any:
        lost = [at(0, content("x")), at(0, {"error": {"message": "lost"}}), at(0, b"data: [DONE]\n\n")]
        answers: list[Any] = [Refusal(503), steady(3)[:-1], lost]
        return answers[number % 3]

    checked: Script = script
    with timed_server(checked) as server:
        code, rows = locust(server.url, wait=lambda: server.until(lambda: len(server.bodies) >= 8))
    assert code == 1
    assert rows["answer"]["num_failures"] == rows["answer"]["num_requests"] >= 3
    assert "TTFT" not in rows
