"""verify.py: what the reports of the runs of pytest come to."""

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

from verify import SUITE_RUNS, StageResult, add_report  # noqa: E402

SUITE = '<testsuites><testsuite tests="{}" failures="{}" errors="{}" skipped="{}"/></testsuites>'


def added(tmp_path: Path, *runs: tuple[tuple[int, int, int, int] | None, int]) -> StageResult:
    """Return the sum of runs given as (tests, failures, errors, skipped), None for no report, and exit code."""
    result = StageResult("tests")
    for number, (counts, code) in enumerate(runs):
        report = tmp_path / f"{number}.xml"
        if counts:
            report.write_text(SUITE.format(*counts))
        add_report(result, f"run {number}", report, code)
    return result


def test_reports_of_all_runs_are_summed(tmp_path: Path) -> None:
    result = added(tmp_path, ((10, 1, 2, 3), 1), ((5, 0, 0, 1), 0))
    assert (result.passed, result.failed, result.skipped, result.notes) == (8, 3, 4, [])


@pytest.mark.parametrize(
    ("counts", "code", "note"),
    [
        (None, 4, "pytest (run 1) wrote no report (exit code 4)"),
        ((5, 0, 0, 0), 3, "pytest (run 1) ended with exit code 3 although no test failed"),
        ((5, 0, 0, 5), 0, "pytest (run 1) ran no test"),
    ],
)
def test_run_that_nothing_explains_is_a_failure_although_another_one_failed_a_test(
    tmp_path: Path, counts: tuple[int, int, int, int] | None, code: int, note: str
) -> None:
    result = added(tmp_path, ((10, 1, 0, 0), 1), (counts, code))
    assert (result.failed, result.notes) == (2, [note])


def test_runs_take_each_test_once() -> None:
    beside, alone = SUITE_RUNS
    assert (beside.expression, alone.expression) == ("not alone", "alone")
    assert "-n" in beside.flags
    assert "-n" not in alone.flags
