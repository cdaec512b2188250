"""`pellucid top` against a running service: one look as a table within 80 columns, and as JSON."""

import json
from collections.abc import Iterator

import pytest
from rich.console import Console

from engine.config import SchedulerConfig
from service.cli import main
from service.top_view import screen, seconds
from tests.support.http_calls import COMPLETIONS, completion, post
from tests.support.scripted_service import ScriptedCore, Served, StepGate, emits, serve


@pytest.fixture
def gate() -> StepGate:
    return StepGate()


@pytest.fixture
def served(gate: StepGate) -> Iterator[Served]:
    scheduling = SchedulerConfig(block_size=4, num_kv_blocks=64, max_num_seqs=4, max_num_batched_tokens=16)
    with serve(core=ScriptedCore(emits(b"abcdefgh"), scheduling, cues=(gate,))) as served:
        yield served


def test_one_look_as_json_has_stats_and_requests(served: Served, capsys: pytest.CaptureFixture[str]) -> None:
    post(served.url, COMPLETIONS, completion("hello", max_tokens=3))
    served.until(lambda: served.services.recorder.requests()["in_flight"] == [])
    assert main(["top", "--url", served.url, "--once", "--json"]) == 0
    said = capsys.readouterr()
    body = json.loads(said.out)
    assert body["stats"]["schema"] == "pellucid-stats"
    assert [row["num_output_tokens"] for row in body["requests"]["recent"]] == [3]
    assert said.err == ""


def test_screen_fits_eighty_columns_and_says_what_each_request_does(served: Served, gate: StepGate) -> None:
    post(served.url, COMPLETIONS, completion("hello", max_tokens=3))
    gate.close()
    with served.streaming(COMPLETIONS, completion("hello there, who waits", max_tokens=6)) as answer:
        assert gate.waiting.wait(5)
        recorder = served.services.recorder
        served.until(lambda: len(recorder.requests()["recent"]) == 1)
        console = Console(width=80, highlight=False, record=True, force_terminal=False)
        with console.capture() as captured:
            console.print(screen(served.stats(), recorder.requests(), num_rows=10))
        gate.open()
        answer.rest()
    lines = captured.get().splitlines()
    assert max(len(line.rstrip()) for line in lines) <= 80
    assert "scripted on scripted" in lines[0]
    assert lines[2].startswith("KV ")
    assert lines[2].endswith("of 64")
    assert lines[3].split()[:4] == ["request", "now", "age", "prompt"]
    assert lines[4].split()[1] == "queue"
    assert lines[5].split()[1:2] == ["finished"]
    assert lines[5].split()[-1] == "length"
    assert "…" not in "".join(lines), "a cell was cut"


def test_server_that_is_not_there_is_one_line_and_exit_code_1(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["top", "--url", "http://127.0.0.1:9", "--once"]) == 1
    assert capsys.readouterr().err.startswith("error: no server answers at http://127.0.0.1:9")


@pytest.mark.parametrize("flags", [["--json"], ["--interval", "0"], ["--rows", "x"]])
def test_bad_flags_are_exit_code_2(flags: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["top", *flags]) == 2
    assert capsys.readouterr().err.startswith("error: ")


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "–"), (0.0, "0ms"), (0.0312, "31ms"), (0.0999, "0.1s"), (12.34, "12.3s"), (99.97, "2m"), (7_200.0, "2h")],
)
def test_durations_take_five_characters(value: float | None, text: str) -> None:
    assert seconds(value) == text
    assert len(text) <= 5


def test_long_reason_is_whole_within_eighty_columns(served: Served) -> None:
    assert post(served.url, COMPLETIONS, completion("x" * 5_000)).status_code == 400
    served.until(lambda: len(served.services.recorder.requests()["recent"]) == 1)
    console = Console(width=80, highlight=False, force_terminal=False)
    with console.capture() as captured:
        console.print(screen(served.stats(), served.services.recorder.requests(), num_rows=10))
    lines = captured.get().splitlines()
    assert max(len(line.rstrip()) for line in lines) <= 80
    assert "".join(line[66:].strip() for line in lines[4:]) == "invalid_request_error"
