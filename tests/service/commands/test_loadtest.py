"""`pellucid loadtest` against a server with known timings, and its reports."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from service.cli import main
from tests.support.timed_server import Refusal, TimedServer, steady, timed_server

COMMON_FORM = {
    *("unit", "avg", "p1", "p5", "p10", "p25", "p50", "p75", "p90", "p95", "p99", "min", "max", "std", "count", "sum")
}
POISSON = """
name = "<small> & test"
min_attainment = 0.5
[target]
url = "{url}"
[load]
num_requests = 120
arrivals = {{ kind = "poisson", rate = 200 }}
prompt_tokens = {{ kind = "fixed", tokens = 10 }}
slos = {{ ttft_ms = 400, itl_ms = 100 }}
"""
SWEEP = POISSON.replace("num_requests = 120", "num_requests = 10").replace(
    'kind = "poisson", rate = 200', 'kind = "sweep", levels = [1, 2, 4]'
)


def scenario(tmp_path: Path, server: TimedServer, content: str = POISSON) -> str:
    path = tmp_path / "scenario.toml"
    path.write_text(content.format(url=server.url))
    return str(path)


def test_loadtest_prints_a_readable_report_and_passes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with timed_server(lambda number, body: steady(4, first_s=0.02, gap_s=0.01)) as server:
        code = main(["loadtest", scenario(tmp_path, server)])
    out = capsys.readouterr().out
    assert code == 0
    assert "120 ok, 0 refused, 0 failed" in out
    assert re.search(r"time to first token, ms +[\d.]+ +[\d.]+ ", out)
    assert all(len(line) <= 80 for line in out.splitlines())
    assert re.search(r"attainment \d+\.\d % \(95 % interval \d+\.\d % to \d+\.\d %\), \d+ of 120", out)


def test_loadtest_json_goes_alone_to_stdout_in_the_common_form(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with timed_server(lambda number, body: steady(2, gap_s=0.01)) as server:
        assert main(["loadtest", scenario(tmp_path, server), "--seed", "7", "--json"]) == 0
    captured = capsys.readouterr()
    result = json.loads(captured.out)
    assert captured.err == ""
    metrics = result["stages"][0]["metrics"]
    assert all(metric.keys() == COMMON_FORM for metric in metrics.values())
    assert metrics["time_to_first_token"]["count"] == 120
    assert (result["plan"]["seed"], len(result["requests"]), result["stop_reason"]) == (7, 120, "finished")


def test_loadtest_page_is_whole_in_itself_and_small(tmp_path: Path) -> None:
    page, data = tmp_path / "r.html", tmp_path / "r.json"
    with timed_server(lambda number, body: steady(4, gap_s=0.01)) as server:
        code = main(["loadtest", scenario(tmp_path, server), "--html", str(page), "--json", str(data)])
    text = page.read_text()
    assert code == 0
    assert len(text) < 200_000
    assert not re.search(r"<script|<link|src=|href=|url\(|@import", text)
    assert "<h1>&lt;small&gt; &amp; test</h1>" in text
    charts = re.findall(r"<svg.*?</svg>", text, re.DOTALL)
    assert len(charts) == 5
    assert "no samples" not in "".join(charts)
    dots = ET.fromstring(charts[3])
    assert len(dots.findall(".//circle")) == len(json.loads(data.read_text())["requests"])


def test_loadtest_sweep_shows_every_level_and_the_knee(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "r.html"
    with timed_server(lambda number, body: steady(2, gap_s=0.02)) as server:
        assert main(["loadtest", scenario(tmp_path, server, SWEEP), "--html", str(page)]) == 0
    out = capsys.readouterr().out
    assert [line.split()[0] for line in out.splitlines() if re.match(r" *[124] +\d+\.\d", line)] == ["1", "2", "4"]
    assert re.search(r"(no knee|knee at \d streams): ", out)
    assert "Throughput of each level" in page.read_text()


def test_loadtest_attainment_below_the_scenarios_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with timed_server(lambda number, body: Refusal(429) if number % 3 else steady(1)) as server:
        code = main(["loadtest", scenario(tmp_path, server)])
    out = capsys.readouterr().out
    assert code == 1
    assert "80 × HTTP 429" in out
    assert "80 requests were refused" in out


def test_loadtest_wrong_scenario_is_bad_usage_and_silent_server_a_failure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["loadtest", str(tmp_path / "none.toml")]) == 2
    assert capsys.readouterr().err.startswith("error: the scenario ")
    path = tmp_path / "s.toml"
    path.write_text(POISSON.format(url="http://127.0.0.1:1"))
    assert main(["loadtest", str(path), "--json"]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("error: http://127.0.0.1:1/v1/models names no model")
    assert main(["loadtest", str(path), "--url", "ftp://elsewhere"]) == 2


def test_loadtest_interrupted_reports_what_there_is(tmp_path: Path) -> None:
    with timed_server(lambda number, body: steady(2, gap_s=60.0 if number > 3 else 0.0)) as server:
        command = [sys.executable, "-m", "service.cli", "loadtest", scenario(tmp_path, server)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        server.until(lambda: len(server.bodies) > 20)
        os.kill(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=20)
    assert (process.returncode, err) == (130, "")
    assert "The load was stopped before its end." in out
    assert re.search(r"3 ok, 0 refused, 0 failed, \d+ cut off", out)
