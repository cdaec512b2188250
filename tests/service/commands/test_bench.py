"""`pellucid bench`: figures of every shape, a baseline that a slower run fails and never joins."""

import json
from pathlib import Path

import pytest

from service.benchmark.baseline import Run
from service.cli import main

BENCH = [
    "bench",
    "--model",
    "random:tiny",
    "--executor",
    "reference",
    "--max-num-batched-tokens",
    "1024",
    "--steps",
    "3",
    "--json",
]


def bench(capsys: pytest.CaptureFixture[str], *options: str) -> tuple[int, dict[str, object]]:
    code = main([*BENCH, *options])
    return code, json.loads(capsys.readouterr().out)


def test_bench_slower_than_the_baseline_exits_one_and_leaves_the_file_alone(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "baseline.json"
    code, report = bench(capsys, "--baseline", str(path))
    assert code == 0
    steps = report["steps"]
    assert isinstance(steps, list)
    assert [step["name"] for step in steps][:3] == ["decode 1", "decode 8", "decode 32"]
    assert all(step["steps"] >= 3 and step["execute_ms"] > 0 and step["operations"] > 0 for step in steps)
    assert all(step["step_ms"] >= step["execute_ms"] for step in steps)

    (run,) = json.loads(path.read_text())
    run["figures"]["decode 8"] *= 1000
    path.write_text(json.dumps([run]))
    code, report = bench(capsys, "--baseline", str(path))
    assert code == 1
    regressions = report["regressions"]
    assert isinstance(regressions, list)
    assert any(line.startswith("decode 8: ") for line in regressions)
    assert json.loads(path.read_text()) == [run]
    assert Run(**run).figures == run["figures"]


@pytest.mark.parametrize(
    ("options", "error"),
    [
        (["--steps", "2"], "error: --steps must be at least 3, got 2"),
        (["--url", "http://127.0.0.1:1"], "error: a request failed: no connection"),
    ],
)
def test_bench_that_cannot_measure_is_one_line_and_exit_code_two(
    capsys: pytest.CaptureFixture[str], options: list[str], error: str
) -> None:
    assert main([*BENCH, *options]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith(error)
