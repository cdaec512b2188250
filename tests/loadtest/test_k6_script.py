"""loadtest/k6_script.js: its types against k6's own, and its logic under a shim of k6's modules on live servers."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.clients.builds import require
from tests.support.scripted_service import emits, serve
from tests.support.timed_server import ROLE, At, Refusal, Script, at, content, finish, steady, timed_server, usage

ROOT = Path(__file__).resolve().parents[2]
NODE = ROOT / "tests" / "node"
SCRIPT = ROOT / "loadtest" / "k6_script.js"
MISSED_THRESHOLDS = 99
DONE = b"data: [DONE]\r\n\r\n"


def tsc(*arguments: str) -> subprocess.CompletedProcess[str]:
    require("node")
    compiler = NODE / "node_modules" / "typescript" / "bin" / "tsc"
    if not compiler.exists():
        require("the TypeScript compiler (npm ci --prefix tests/node)")
    return subprocess.run(["node", str(compiler), *arguments], capture_output=True, text=True, timeout=90, check=False)


def k6(tmp_path: Path, url: str, *, iterations: int = 4, **settings: str) -> tuple[int, dict[str, Any], str]:
    """Run the script and return exit code, metrics by name and what it printed."""
    require("node")
    summary = tmp_path / "summary.json"
    variables = {"BASE_URL": url, "SUMMARY_FILE": str(summary), **settings}
    command = ["node", "--no-warnings", str(NODE / "k6" / "run.mjs"), str(SCRIPT), str(iterations)]
    done = subprocess.run(
        [*command, *(f"{name}={value}" for name, value in variables.items())],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode in (0, MISSED_THRESHOLDS), done.stderr
    return done.returncode, json.loads(summary.read_text())["metrics"], done.stdout


def timed(*, ttft_ms: float = 40.0, itl_ms: float = 5.0) -> list[At]:
    """Return a stream whose final chunk has the server's own timings, with the line ends that servers may send."""
    last = {**usage(7, cached=3), "metrics": {"time_to_first_token_ms": ttft_ms, "mean_itl_ms": itl_ms}}
    crlf = b"data: " + json.dumps(content("hello")).encode() + b"\r\n\r\n"
    return [at(0, ROLE), at(0, crlf), at(0, b": comment\r\n\r\n"), at(0, finish()), at(0, last), at(0, DONE)]


def test_k6_script_has_the_types_of_k6() -> None:
    done = tsc("-p", str(NODE / "tsconfig.json"))
    assert done.returncode == 0, done.stdout


def test_k6_type_check_finds_a_call_that_k6_does_not_have(tmp_path: Path) -> None:
    config = json.loads((NODE / "tsconfig.json").read_text())
    options = config["compilerOptions"]
    options["paths"] = {name: [str(NODE / path) for path in paths] for name, paths in options["paths"].items()}
    options["typeRoots"] = [str(NODE / "node_modules" / "@types")]
    (tmp_path / "broken.js").write_text(SCRIPT.read_text().replace("http.post(", "http.postStream("))
    (tmp_path / "tsconfig.json").write_text(json.dumps({**config, "files": ["broken.js"]}))
    done = tsc("-p", str(tmp_path / "tsconfig.json"))
    assert done.returncode != 0
    assert "postStream" in done.stdout


def test_k6_script_on_the_real_service_reads_the_servers_own_timings(tmp_path: Path) -> None:
    with serve(script=emits(b"hello")) as served:
        code, metrics, out = k6(tmp_path, served.url, iterations=5, MAX_TOKENS="5")
        recent = served.get("/telemetry/requests?recent=10").json()["recent"]
    assert code == 0, out
    assert metrics["pellucid_output_tokens"]["values"]["count"] == 25
    assert metrics["pellucid_errors"]["values"] == {"rate": 0, "passes": 0, "fails": 5}
    first = metrics["pellucid_ttft_ms"]["values"]
    assert first["count"] == 5
    # What the final chunk says is measured up to the engine when the first token leaves together with it.
    assert 0 < first["min"] <= first["max"] <= max(request["ttft_s"] for request in recent) * 1e3 + 0.01


def test_k6_script_scripted_timings_are_the_ones_it_reports(tmp_path: Path) -> None:
    with timed_server(lambda number, body: timed(ttft_ms=10.0 * (number + 1))) as server:
        code, metrics, out = k6(tmp_path, server.url, MODEL="m", API_KEY="k")
    assert code == 0, out
    first = metrics["pellucid_ttft_ms"]["values"]
    assert (first["min"], first["med"], first["max"], first["count"]) == (10, 25, 40, 4)
    assert metrics["pellucid_itl_ms"]["values"]["avg"] == 5
    assert metrics["pellucid_output_tokens"]["values"]["count"] == 28
    assert metrics["pellucid_cached_tokens"]["values"]["count"] == 12
    assert {(body["model"], body["stream"], body["timings"]) for body in server.bodies} == {("m", True, True)}
    assert len({body["messages"][0]["content"] for body in server.bodies}) == 4
    assert "pellucid_ttft_ms: count=4 min=10" in out


@pytest.mark.parametrize(
    "script",
    [
        lambda number, body: Refusal(429),
        lambda number, body: timed()[:-1],
        lambda number, body: [*timed()[:3], *timed()[4:]],
        lambda number, body: [*timed()[:2], at(0, {"error": {"message": "lost"}}), *timed()[3:]],
        lambda number, body: [at(0, b"data: {nonsense\n\n"), *timed()],
        lambda number, body: steady(3),
    ],
    ids=["refused", "no [DONE]", "no finish reason", "error event", "no JSON", "no timings"],
)
def test_k6_script_answer_that_is_not_whole_is_an_error_and_no_latency(tmp_path: Path, script: Script) -> None:
    with timed_server(script) as server:
        code, metrics, out = k6(tmp_path, server.url, iterations=2)
    assert code == MISSED_THRESHOLDS
    assert metrics["pellucid_errors"]["values"]["rate"] == 1
    assert metrics["pellucid_ttft_ms"]["values"] == {"count": 0}
    assert "MISSED rate<0.01" in out


def test_k6_script_slow_server_misses_the_thresholds(tmp_path: Path) -> None:
    with timed_server(lambda number, body: timed(ttft_ms=2500.0)) as server:
        code, metrics, out = k6(tmp_path, server.url)
    assert code == MISSED_THRESHOLDS
    assert metrics["pellucid_ttft_ms"]["thresholds"] == {"p(95)<2000": {"ok": False}}
    assert "MISSED p(95)<2000" in out
