"""Every client against a running `pellucid serve`."""

import re
from collections.abc import Iterator

import httpx
import pytest

from tests.clients.languages import LANGUAGES, run
from tests.support.serve_process import ServeProcess

TRACE = re.compile(r"trace: ([0-9a-f]{32}) http://127\.0\.0\.1:3100/#trace=\1")


@pytest.fixture(scope="module")
def server() -> Iterator[ServeProcess]:
    served = ServeProcess("--model", "random:tiny", "--threads", "1")
    try:
        served.wait_ready()
        yield served
    finally:
        served.close()


@pytest.mark.parametrize("language", LANGUAGES)
def test_models_are_the_servers_own(language: str, server: ServeProcess) -> None:
    assert run(language, "models", "--url", server.url).stdout == "model: random:tiny\n"


@pytest.mark.parametrize("language", LANGUAGES)
def test_chat_and_chat_stream_print_the_same_answer_and_a_trace_that_exists(
    language: str, server: ServeProcess
) -> None:
    texts = []
    for program in ("chat", "chat-stream"):
        seen = run(language, program, "--url", server.url, "--max-tokens", "12")
        assert (seen.code, seen.stderr) == (0, "")
        text, tokens, trace = seen.stdout.rstrip("\n").rsplit("\n", 2)
        assert re.fullmatch(r"tokens: \d+ prompt, \d+ cached, 12 completion", tokens)
        found = TRACE.fullmatch(trace)
        assert found
        assert httpx.get(f"{server.url}/telemetry/traces/{found.group(1)}").status_code == 200
        texts.append(text)
    assert texts[0] == texts[1]
    assert texts[0].endswith("\nfinish: length")


@pytest.mark.parametrize("language", LANGUAGES)
def test_unknown_model_is_refused_with_the_servers_words(language: str, server: ServeProcess) -> None:
    seen = run(language, "chat", "--url", server.url, "--model", "nobody")
    assert seen.code == 1
    assert re.fullmatch(r"error: the server answered 404: .*nobody.*\n", seen.stderr)


@pytest.mark.parametrize("language", LANGUAGES)
def test_probe_and_load_count_every_token(language: str, server: ServeProcess) -> None:
    for program in ("probe", "load"):
        flags = ("--requests", "12", "--concurrency", "4", "--max-tokens", "8")
        seen = run(language, program, "--url", server.url, *flags)
        assert (seen.code, seen.stderr) == (0, "")
        assert "requests: 12 ok, 0 failed\ntokens: 96\n" in seen.stdout


ROW = re.compile(r" *(\d+) +(\d+) +(\d+) +(\d+\.\d) +(\d+\.\d\d) +(\d+\.\d{3}) +(-|\d+\.\d{3})")


@pytest.mark.parametrize("language", LANGUAGES)
def test_ladder_names_the_first_rung_with_nine_tenths_of_the_best_speed(language: str, server: ServeProcess) -> None:
    flags = ("--requests", "8", "--ladder", "1,2,8", "--max-tokens", "8")
    seen = run(language, "load", "--url", server.url, *flags)
    assert (seen.code, seen.stderr) == (0, "")
    _, *lines, knee = seen.stdout.splitlines()
    rows = [found.groups() for line in lines if (found := ROW.fullmatch(line))]
    assert len(rows) == len(lines) == 3, seen.stdout
    assert [row[:3] for row in rows] == [("1", "8", "0"), ("2", "8", "0"), ("8", "8", "0")]
    assert rows[0][4] == "1.00"
    speeds = {row[0]: float(row[3]) for row in rows}
    wanted = 0.9 * max(speeds.values())
    rung = knee.removeprefix("knee: ")
    below = [speed for other, speed in speeds.items() if int(other) < int(rung)]
    assert speeds[rung] >= wanted - 0.1  # printed with one decimal
    assert all(speed < wanted + 0.1 for speed in below)
