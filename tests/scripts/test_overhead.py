"""scripts/bench.py --overhead: what is made of the bursts, not the servers."""

import pytest

from scripts.serving.overhead import Burst, _added, _ratio
from scripts.serving.recorder_cost import events_us_per_step


def burst(rate: float, service_us: float, *, viewer_us: float = 0.0) -> Burst:
    return Burst(rate, service_us / 1e6, 5_000 / 1e6, viewer_us / 1e6, 0.0, ("text",))


BLOCKS = [
    [
        {"on": burst(99.0, 130, viewer_us=6), "off": burst(100.0, 100)},
        {"on": burst(99.0, 140, viewer_us=2), "off": burst(100.0, 100)},
        {"on": burst(10.0, 900, viewer_us=4), "off": burst(100.0, 100)},
    ],
    [{"on": burst(97.0, 120, viewer_us=4), "off": burst(100.0, 100)}],
]


def test_added_time_sums_service_viewer_and_events_over_blocks() -> None:
    added = _added(BLOCKS, events_us=1.0)
    assert (added["service"], added["viewer"], added["engine_events"]) == (30.0, 4.0, 1.0)  # 40 and 20; 4 and 4
    assert added["share"] == {"mean": pytest.approx(35 / 5_100, abs=1e-5), "low": pytest.approx(25 / 5_100, abs=1e-5),
                              "high": pytest.approx(45 / 5_100, abs=1e-5)}  # fmt: skip


def test_ratio_is_the_mean_of_block_medians() -> None:
    ratio = _ratio(BLOCKS, lambda pair: pair["on"].tokens_per_s / pair["off"].tokens_per_s)
    assert ratio == {"mean": 0.9799, "low": 0.97, "high": 0.99}  # geometric


def test_saying_every_event_of_a_step_takes_time() -> None:
    few, many = events_us_per_step(1), events_us_per_step(16)
    assert 0 < few < many < 2_000
