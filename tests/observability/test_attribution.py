"""Where requests' time went: exclusive causes that sum to it, each by its definition."""

import pytest

from observability.attribution import attribution_of
from observability.label_sets import CAUSES
from tests.support.attributed_load import AttributedLoad
from tests.support.attribution_oracle import Oracle

NUM_REQUESTS = 1_000


@pytest.fixture(scope="module")
def load() -> AttributedLoad:
    load = AttributedLoad(seed=7)
    load.run(NUM_REQUESTS)
    return load


def test_causes_sum_to_the_wall_time_of_a_thousand_requests_under_pressure(load: AttributedLoad) -> None:
    assert len(load.closed) == NUM_REQUESTS
    shares = []
    for timeline in load.closed:
        seconds = attribution_of(timeline, now=0.0)
        assert timeline.e2e_s is not None
        assert tuple(seconds) == CAUSES
        assert sum(seconds.values()) == pytest.approx(timeline.e2e_s, abs=1e-9)
        assert min(seconds.values()) > -1e-9, f"{timeline.request_id}: {seconds}"
        shares.append(seconds["unattributed"] / timeline.e2e_s)
    shares.sort()
    assert shares[int(0.99 * NUM_REQUESTS)] < 0.01
    assert load.recorder.stats()["counters"]["preemptions"] > 100, "the pool was hardly ever short"


def test_every_cause_is_what_its_definition_says_piece_by_piece(load: AttributedLoad) -> None:
    oracle = Oracle(load.events)
    seen = set()
    for timeline in load.closed:
        said, right = attribution_of(timeline, now=0.0), oracle.split(timeline)
        for cause in CAUSES:
            assert said[cause] == pytest.approx(right.get(cause, 0.0), abs=2e-5), f"{timeline.request_id} {cause}"
            if right.get(cause, 0.0) > 1e-4:
                seen.add(cause)
    assert seen >= set(CAUSES) - {"unattributed", "queue_token_budget"}, f"never seen: {set(CAUSES) - seen}"


def test_queue_is_the_timelines_queue(load: AttributedLoad) -> None:
    for timeline in load.closed:
        seconds = attribution_of(timeline, now=0.0)
        waited = sum(value for cause, value in seconds.items() if cause.startswith("queue_") and cause != "queue_inbox")
        if timeline.sent_last is None or timeline.ended is None or timeline.sent_last >= timeline.ended:
            assert waited + seconds["preempted"] == pytest.approx(timeline.queue_s, abs=1e-9), timeline.request_id


def test_metrics_are_the_sums_over_the_requests(load: AttributedLoad) -> None:
    totals = {cause: sum(attribution_of(t, now=0.0)[cause] for t in load.closed) for cause in CAUSES}
    for values, series in load.metrics.attributed.items():
        assert series.value == pytest.approx(totals[values[0]], abs=1e-3), values
    durations = load.metrics.duration.at()
    assert load.metrics.attributed.total() == pytest.approx(durations.sum, abs=1e-3)
    residual = load.metrics.unattributed.at()
    assert (residual.count, residual.sum) == (durations.count, pytest.approx(totals["unattributed"], abs=1e-3))


def test_work_of_the_service_beside_the_engine_costs_no_time(load: AttributedLoad) -> None:
    timeline = max(load.closed, key=lambda t: len(t.blocked))
    assert timeline.blocked
    assert timeline.ended is not None
    assert timeline.sent_last is not None
    blocked_after = timeline.blocked_between(timeline.ended, timeline.sent_last)
    assert attribution_of(timeline, now=0.0)["send"] >= blocked_after
    assert blocked_after < sum(blocked.end - blocked.start for blocked in timeline.blocked)
