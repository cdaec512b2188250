"""`GET /kernels`: one measurement at a time, its progress, its report remembered, its failures told."""

import json
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from engine.kernels.lab.process import command
from service.kernel_lab import NICENESS
from tests.support.http_calls import error_of
from tests.support.scripted_service import Served, emits, serve

REPORT = {
    "conditions": {
        "machine": "x86_64 (64-bit)", "num_cores": 2, "num_threads": 1, "niceness": 19, "load_average": 0.5,
        "instruction_set": "avx2", "python": "3.11.7", "numpy": "2.4.6", "torch": "2.13.0", "compiler": "",
        "measured_at": 1.0, "duration_s": 2.0,
    },
    "backends": [
        {"name": "numpy", "state": "available", "reason": "", "version": "2", "device": "cpu", "kernels": ["rope"]}
    ],
    "checks": [], "timings": [], "call_costs": [], "version": 1,
}  # fmt: skip


class FakeProcess:
    """A measuring process that says given lines, each run waiting for the file `go` and counted in `runs`."""

    def __init__(self, folder: Path, *lines: dict[str, Any], exit_code: int = 0) -> None:
        self.go, self.runs = folder / "go", folder / "runs"
        script = (
            "import pathlib, sys, threading\n"
            f"with open({str(self.runs)!r}, 'a') as runs: runs.write('x')\n"
            'print(\'{"progress":"measuring rope"}\', flush=True)\n'
            f"while not pathlib.Path({str(self.go)!r}).exists(): threading.Event().wait(0.005)\n"
            f"for line in {[json.dumps(line) for line in lines]!r}: print(line, flush=True)\n"
            f"sys.exit({exit_code})\n"
        )
        self.command = [sys.executable, "-c", script]

    @property
    def num_runs(self) -> int:
        return len(self.runs.read_text()) if self.runs.exists() else 0


def poll(served: Served, condition: Any) -> dict[str, Any]:
    """Ask until the answer fits, and return it."""
    answers: list[dict[str, Any]] = []

    def fits() -> bool:
        response = served.get("/kernels")
        answers.append({"status": response.status_code, **response.json()})
        return bool(condition(answers[-1]))

    served_until(fits)
    return answers[-1]


def served_until(condition: Any) -> None:
    for _ in range(2000):
        if condition():
            return
        threading.Event().wait(0.01)
    raise AssertionError("it never came")


def test_kernels_first_ask_measures_and_the_report_is_remembered(tmp_path: Path) -> None:
    process = FakeProcess(tmp_path, {"report": REPORT})
    with serve(script=emits(b"ok"), kernel_lab_command=process.command) as served:
        first = served.get("/kernels")
        assert (first.status_code, first.headers["retry-after"]) == (202, "1")
        assert first.json() == {"state": "measuring", "progress": "starting"}
        poll(served, lambda answer: answer.get("progress") == "measuring rope")
        assert served.get("/kernels?refresh=1").status_code == 202  # one at a time
        process.go.touch()
        ready = poll(served, lambda answer: answer["state"] != "measuring")
        assert ready == {"status": 200, "state": "ready", "report": REPORT}
        assert served.get("/kernels").json()["report"] == REPORT
        assert process.num_runs == 1


def test_kernels_refresh_measures_again_and_keeps_the_last_report(tmp_path: Path) -> None:
    process = FakeProcess(tmp_path, {"report": REPORT})
    with serve(script=emits(b"ok"), kernel_lab_command=process.command) as served:
        process.go.touch()
        poll(served, lambda answer: answer["state"] == "ready")
        process.go.unlink()
        again = served.get("/kernels?refresh=1")
        assert again.status_code == 202
        assert again.json()["report"] == REPORT
        process.go.touch()
        poll(served, lambda answer: answer["state"] == "ready")
        assert process.num_runs == 2


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        ([{"error": "no such instruction set"}], "no such instruction set"),
        ([], "the measuring process ended without a report"),
        ([{"report": {"version": 1}}], "the measuring process: Object missing required field"),
    ],
)
def test_kernels_measurement_that_fails_is_told_and_can_be_tried_again(
    tmp_path: Path, lines: list[dict[str, Any]], reason: str
) -> None:
    process = FakeProcess(tmp_path, *lines, exit_code=1)
    process.go.touch()
    with serve(script=emits(b"ok"), kernel_lab_command=process.command) as served:
        failed = poll(served, lambda answer: answer["state"] != "measuring")
        assert (failed["status"], failed["state"]) == (200, "failed")
        assert failed["reason"].startswith(reason)
        assert served.get("/kernels?refresh=1").status_code == 202
        poll(served, lambda answer: answer["state"] == "failed")


def test_kernels_process_that_cannot_start_is_told() -> None:
    with serve(script=emits(b"ok"), kernel_lab_command=["/nonexistent/program"]) as served:
        failed = poll(served, lambda answer: answer["state"] != "measuring")
        assert "nonexistent" in failed["reason"]


def test_kernels_measuring_ends_with_the_service(tmp_path: Path) -> None:
    process = FakeProcess(tmp_path, {"report": REPORT})
    with serve(script=emits(b"ok"), kernel_lab_command=process.command) as served:
        poll(served, lambda answer: answer.get("progress") == "measuring rope")
    process.go.touch()  # nobody is left to go on; leaving the block waited for its end
    assert process.num_runs == 1


@pytest.mark.parametrize("refresh", ["2", "yes", ""])
def test_kernels_refresh_that_is_no_flag_is_refused(tmp_path: Path, refresh: str) -> None:
    with serve(script=emits(b"ok"), kernel_lab_command=FakeProcess(tmp_path).command) as served:
        response = served.get(f"/kernels?refresh={refresh}")
        assert (response.status_code, error_of(response)["param"]) == (400, "refresh")


def test_kernels_command_gives_way_and_builds_nothing() -> None:
    asked = command(quick=True, build=False, niceness=NICENESS)
    assert asked[1:3] == ["-m", "engine.kernels.lab.process"]
    assert {"--quick", "--no-build"} <= set(asked)
    assert asked[asked.index("--nice") + 1] == "19"
