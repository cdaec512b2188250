"""loadtest/svg_chart.py and cautions.py: what a picture holds, and what a reader is warned of."""

from typing import Any
from xml.etree import ElementTree as ET

import msgspec
import pytest

from loadtest.arrivals import Closed, Poisson
from loadtest.attainment import attainment
from loadtest.cautions import cautions
from loadtest.distribution import Distribution, distribution
from loadtest.lengths import Fixed
from loadtest.load_result import Counts, LoadResult, Rates, StageResult
from loadtest.plan import LoadPlan
from loadtest.svg_chart import MAX_POINTS, Series, chart, ticks
from loadtest.target import Target

RATES = Rates(requests_planned=1, requests_sent=1, requests_done=1, goodput=1, output_tokens=1, prompt_tokens=1)
PLAN = LoadPlan(arrivals=Poisson(rate=1), duration_s=9, prompt_tokens=Fixed(tokens=100), output_tokens=Fixed(tokens=10))


def stage(counts: Counts, **metrics: Distribution) -> StageResult:
    quiet = {
        "request_dispatch_delay": distribution([0.1] * 200, "ms"),
        "connection_wait": distribution([0.0] * 200, "ms"),
        "input_sequence_length": distribution([100.0] * 200, "tokens"),
        "output_sequence_length": distribution([10.0] * 200, "tokens"),
    }
    return StageResult(
        label="a stage",
        concurrency=None,
        window_s=9.0,
        counts=counts,
        rates=RATES,
        attainment=attainment(1, 1),
        metrics={**quiet, **metrics},
        errors={},
    )


def result(*stages: StageResult, **fields: Any) -> LoadResult:
    plain: dict[str, Any] = {
        "schema": "pellucid-load",
        "version": 1,
        "started_at": 0.0,
        "duration_s": 9.0,
        "target": Target(url="http://x"),
        "plan": PLAN,
        "model": "m",
        "characters_per_token": 4.0,
        "stop_reason": "finished",
        "stages": stages,
        "knee": None,
        "timeline": (),
        "requests": (),
    }
    return LoadResult(**{**plain, **fields})


def test_cautions_sound_result_has_none() -> None:
    assert cautions(result(stage(Counts(ok=200)))) == []


@pytest.mark.parametrize(
    ("seen", "words"),
    [
        (result(stage(Counts(ok=200)), stop_reason="saturated"), "could not keep up"),
        (result(stage(Counts(ok=200)), stop_reason="stopped"), "stopped before its end"),
        (result(stage(Counts(ok=200, rejected=3, failed=2))), "3 requests were refused and 2 failed"),
        (result(stage(Counts(ok=20))), "Only 20 answered"),
        (result(stage(Counts(cut=4))), "No request fell due"),
        (
            result(stage(Counts(ok=200), request_dispatch_delay=distribution([0.1] * 197 + [40.0] * 3, "ms"))),
            "generator itself was up to 40 ms late",
        ),
        (
            result(stage(Counts(ok=200), connection_wait=distribution([90.0] * 200, "ms"))),
            "waited for a connection",
        ),
        (
            result(stage(Counts(ok=200), input_sequence_length=distribution([140.0] * 200, "tokens"))),
            "prompts had 140 tokens in the mean, 100 were asked for",
        ),
        (
            result(stage(Counts(ok=200), output_sequence_length=distribution([4.0] * 200, "tokens"))),
            "answers had 4 tokens",
        ),
    ],
)
def test_cautions_each_doubt_is_said_in_one_sentence(seen: LoadResult, words: str) -> None:
    (caution,) = cautions(seen)
    assert words in caution
    assert caution.endswith(".")


def test_cautions_of_several_stages_name_the_stage() -> None:
    several = result(stage(Counts(ok=200)), stage(Counts(ok=2)), plan=msgspec.structs.replace(PLAN, seed=2))
    assert cautions(several) == ["Only 2 answered: percentiles that need more are left out (a stage)."]


def test_result_survives_json() -> None:
    seen = result(stage(Counts(ok=1)), plan=LoadPlan(arrivals=Closed(concurrency=2), num_requests=3))
    assert msgspec.json.decode(msgspec.json.encode(seen), type=LoadResult) == seen
    assert seen.without_requests().requests == ()


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0.0, 10.0, [0, 2, 4, 6, 8, 10]),
        (0.0, 25.4, [0, 10, 20]),
        (0.0, 0.6, [0, 0.2, 0.4, 0.6]),
        (0.0, 1.05, [0, 0.25, 0.5, 0.75, 1]),
        (3.0, 3.0, [3.0]),
    ],
)
def test_ticks_are_round_and_within(low: float, high: float, expected: list[float]) -> None:
    assert ticks(low, high) == pytest.approx(expected)


def test_chart_lines_stop_where_there_is_no_value_and_text_is_escaped() -> None:
    line = Series("a<b", [(0.0, 1.0), (1.0, 2.0), (2.0, None), (3.0, 1.0)])
    svg = ET.fromstring(chart("t & u", [line], x_label="s", y_label="ms"))
    path = svg.find("path")
    assert path is not None
    assert (path.attrib["d"].count("M"), path.attrib["d"].count("L")) == (2, 1)
    assert {"t & u", "a<b", "s", "ms"} <= {text.text for text in svg.iter("text")}


def test_chart_points_lie_within_the_picture_and_are_thinned() -> None:
    dots = Series("dots", [(float(x), float(x % 97)) for x in range(5 * MAX_POINTS + 1)], is_dots=True)
    circles = list(ET.fromstring(chart("t", [dots], x_label="", y_label="")).iter("circle"))
    assert MAX_POINTS / 2 < len(circles) <= MAX_POINTS
    assert all(50 < float(each.attrib["cx"]) < 640 and 0 < float(each.attrib["cy"]) < 240 for each in circles)


def test_chart_without_a_point_says_so() -> None:
    assert "no samples" in chart("t", [Series("x", [(0.0, None)])], x_label="", y_label="")
