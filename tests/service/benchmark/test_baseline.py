"""service/benchmark/baseline.py: what counts as slower, and which runs a baseline is made of."""

from pathlib import Path

import pytest

from service.benchmark.baseline import FEW_TOLERANCE, MAX_RUNS, MIN_TOLERANCE, Baseline, Run

HERE = {"cpu": "one"}


def baseline_of(path: Path, *values: float, fingerprint: dict[str, str] = HERE) -> Baseline:
    baseline = Baseline(path)
    for value in values:
        baseline.add(Run(fingerprint, {"decode 1": value}))
    return Baseline(path)


def regressed(baseline: Baseline, value: float) -> bool:
    return bool(baseline.regressions(Run(HERE, {"decode 1": value})))


def test_baseline_first_run_has_nothing_to_regress_from(tmp_path: Path) -> None:
    assert not regressed(Baseline(tmp_path / "none.json"), 0.001)


def test_baseline_is_the_median_so_one_lucky_run_does_not_move_it(tmp_path: Path) -> None:
    baseline = baseline_of(tmp_path / "b.json", 1.0, 1.0, 9.0)
    assert not regressed(baseline, 1.0 - MIN_TOLERANCE + 0.01)
    (found,) = baseline.regressions(Run(HERE, {"decode 1": 1.0 - MIN_TOLERANCE - 0.01}))
    assert (found.baseline, found.tolerance) == (1.0, MIN_TOLERANCE)
    assert str(found) == "decode 1: 0.89 is 11% below the baseline of 1, 10% is tolerated"


def test_baseline_of_few_runs_tolerates_what_a_shared_host_drifts_by(tmp_path: Path) -> None:
    baseline = baseline_of(tmp_path / "b.json", 1.0, 1.0)
    assert not regressed(baseline, 1.0 - FEW_TOLERANCE + 0.01)
    assert regressed(baseline, 1.0 - FEW_TOLERANCE - 0.01)


def test_baseline_of_noisy_runs_tolerates_their_noise(tmp_path: Path) -> None:
    baseline = baseline_of(tmp_path / "b.json", 0.9, 1.0, 1.1)
    assert not regressed(baseline, 0.6)
    assert regressed(baseline, 0.5)


def test_baseline_of_another_machine_is_not_compared(tmp_path: Path) -> None:
    assert not regressed(baseline_of(tmp_path / "b.json", 9.0, 9.0, 9.0, fingerprint={"cpu": "other"}), 1.0)


def test_baseline_figure_that_no_run_has_does_not_regress(tmp_path: Path) -> None:
    baseline = baseline_of(tmp_path / "b.json", 1.0)
    assert baseline.regressions(Run(HERE, {"decode 8": 0.1})) == []


def test_baseline_forgets_the_oldest_run_of_its_fingerprint_only(tmp_path: Path) -> None:
    path = tmp_path / "b.json"
    baseline_of(path, 7.0, fingerprint={"cpu": "other"})
    baseline_of(path, 0.1, *[1.0] * MAX_RUNS)
    content = path.read_text()
    assert content.count("1.0") == MAX_RUNS
    assert "7.0" in content
    assert "0.1" not in content


def test_baseline_file_that_is_none_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "b.json"
    path.write_text('{"runs": 3}')
    with pytest.raises(ValueError, match="is no baseline"):
        Baseline(path)
