"""loadtest/distribution.py, attainment.py, fluidity.py, slo.py, knee.py and saturation.py: worked out by hand."""

import math

import pytest

from loadtest.attainment import attainment, wilson_interval
from loadtest.distribution import distribution
from loadtest.fluidity import fluidity
from loadtest.knee import find_knee
from loadtest.live_window import LiveWindow
from loadtest.load_result import Counts, Rates, StageResult
from loadtest.saturation import SaturationWatch
from loadtest.slo import Slos

SLOS = Slos(ttft_ms=100, itl_ms=10)


def stage(streams: int, tokens_per_s: float, good: int = 0) -> StageResult:
    rates = Rates(
        requests_planned=0, requests_sent=0, requests_done=0, goodput=0, output_tokens=tokens_per_s, prompt_tokens=0
    )
    return StageResult(
        label=f"{streams} streams",
        concurrency=streams,
        window_s=1.0,
        counts=Counts(),
        rates=rates,
        attainment=attainment(good, 1000),
        metrics={},
        errors={},
    )


def test_distribution_of_a_hundred_samples_has_every_percentile() -> None:
    found = distribution((float(value) for value in range(100, 0, -1)), "ms")
    assert (found.p1, found.p5, found.p10, found.p25, found.p50) == (1, 5, 10, 25, 50)
    assert (found.p75, found.p90, found.p95, found.p99) == (75, 90, 95, 99)
    assert (found.min, found.max, found.count, found.sum, found.avg) == (1, 100, 100, 5050, 50.5)
    assert found.std == pytest.approx(math.sqrt((100**2 - 1) / 12))


def test_distribution_of_few_samples_leaves_the_tails_blank() -> None:
    found = distribution([3.0, 1.0, 2.0], "ms")
    assert (found.p50, found.avg, found.max) == (2.0, 2.0, 3.0)
    assert (found.p1, found.p25, found.p75, found.p99) == (None,) * 4
    assert distribution([], "ms").avg is None


@pytest.mark.parametrize(
    ("good", "total", "low", "high"),
    [(0, 10, 0.0, 0.2775), (10, 10, 0.7225, 1.0), (8, 10, 0.4902, 0.9433), (95, 100, 0.8882, 0.9785)],
)
def test_wilson_interval_has_the_published_values(good: int, total: int, low: float, high: float) -> None:
    assert wilson_interval(good, total) == (pytest.approx(low, abs=5e-4), pytest.approx(high, abs=5e-4))


def test_attainment_of_nothing_is_blank() -> None:
    found = attainment(0, 0)
    assert (found.ratio, found.low, found.high) == (None, None, None)


def test_fluidity_early_tokens_leave_slack_for_a_later_pause() -> None:
    """Deadlines are at 100, 110, ... ms; five tokens come at once at 50 ms, the sixth is due at 150 and comes then."""
    assert fluidity([0.050] * 5 + [0.150], due=0.0, slos=SLOS) == 1.0


def test_fluidity_stall_misses_every_deadline_that_passes() -> None:
    """Due at 110, comes at 145: the deadlines of 110, 120, 130 and 140 have passed. The next is due at 155."""
    assert fluidity([0.100, 0.145, 0.155], due=0.0, slos=SLOS) == 2 / 6


def test_fluidity_late_first_token_counts_from_its_planned_moment() -> None:
    assert fluidity([5.105], due=5.0, slos=SLOS) == 0.0
    assert fluidity([5.100], due=5.001, slos=SLOS) == 1.0


def test_fluidity_without_tokens_or_bounds_is_blank() -> None:
    assert fluidity([], due=0.0, slos=SLOS) is None
    assert fluidity([1.0], due=0.0, slos=Slos(ttft_ms=5)) is None


def test_slos_each_bound_counts_and_none_bounds_nothing() -> None:
    slos = Slos(ttft_ms=100, itl_ms=10, e2e_ms=500)
    assert slos.met(ttft_s=0.1, itl_s=0.01, e2e_s=0.5)
    assert slos.met(ttft_s=0.1, itl_s=None, e2e_s=0.1)
    assert not slos.met(ttft_s=0.11, itl_s=0.01, e2e_s=0.5)
    assert not slos.met(ttft_s=0.1, itl_s=0.011, e2e_s=0.5)
    assert not slos.met(ttft_s=0.1, itl_s=0.01, e2e_s=0.51)
    assert Slos().met(ttft_s=9, itl_s=9, e2e_s=9)


def test_slos_cut_request_is_lost_only_when_a_bound_has_passed() -> None:
    slos = Slos(ttft_ms=100, e2e_ms=500)
    assert not slos.missed_already(waited_s=0.09, has_token=False)
    assert slos.missed_already(waited_s=0.11, has_token=False)
    assert not slos.missed_already(waited_s=0.11, has_token=True)
    assert slos.missed_already(waited_s=0.51, has_token=True)


def test_knee_is_where_throughput_stops_growing() -> None:
    knee = find_knee(
        [stage(1, 100, 1000), stage(2, 190, 999), stage(4, 340, 990), stage(8, 360, 960), stage(16, 365, 20)],
        has_slos=True,
    )
    assert (knee.concurrency, knee.best_within_slos) == (4, 4)  # 960 of 1000 may truly be 94.6 %


def test_knee_curve_that_only_grows_or_never_does_has_none() -> None:
    growing = find_knee([stage(1, 100), stage(2, 200), stage(3, 300)], has_slos=False)
    flat = find_knee([stage(1, 100), stage(2, 100), stage(3, 100)], has_slos=False)
    assert growing.concurrency is flat.concurrency is None
    assert growing.best_within_slos is None
    assert "last one" in growing.why


def test_saturation_needs_both_queue_and_latency_to_grow() -> None:
    def verdicts(in_flight: float, ttft: float, num: int = 30) -> bool:
        watch = SaturationWatch()
        wobble = [0.0, 1.0, 0.5, 1.5]
        return any(
            watch.is_saturated(t, int(10 + in_flight * t + wobble[t % 4]), 0.5 + ttft * t + wobble[t % 4] / 20)
            for t in range(num)
        )

    assert verdicts(2.0, 0.1)
    assert not verdicts(2.0, 0.0)
    assert not verdicts(0.0, 0.1)
    assert not verdicts(0.0, 0.0)
    assert not verdicts(2.0, 0.1, num=14)


def test_live_window_forgets_what_is_older() -> None:
    window = LiveWindow(5.0)
    for moment in range(10):
        window.add(float(moment), 0.001 * moment)
    window.forget_before(10.0)
    assert window.quantiles_ms() == (pytest.approx(7), None, None)
    assert window.per_second(10.0) == pytest.approx(0.035 / 5)
    assert window.max_ms() == pytest.approx(9)
