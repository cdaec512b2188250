"""`GET /stats`: form, windows, history."""

from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest

from engine.events import RequestTokens
from observability.stats import stats_schema
from tests.support.event_script import Script


@pytest.fixture
def script() -> Script:
    script = Script(start=1000.0)
    script.engine_started()
    return script


def columns(stats: dict[str, Any], *names: str) -> list[tuple[Any, ...]]:
    return list(zip(*(stats["history"][name] for name in names), strict=True))


def floats(value: object) -> Iterator[float]:
    if isinstance(value, float):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from floats(item)
    elif isinstance(value, list):
        for item in value:
            yield from floats(item)


def test_stats_follow_their_schema_and_version_idle_and_busy(script: Script) -> None:
    schema = stats_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    for start in (1001.0, 1005.0):
        body = script.recorder.stats()
        jsonschema.validate(body, schema)
        assert (body["schema"], body["version"]) == ("pellucid-stats", 1)
        assert all(value == value and abs(value) != float("inf") for value in floats(body))
        script.arrive("a")
        script.schedule("a")
        for t in (start, start + 1.5):
            script.at(t).tokens("a")
            script.run_step()


def test_history_has_one_row_per_settled_second_with_gauges_carried_over(script: Script) -> None:
    script.at(1001.1).arrive("a")
    script.schedule("a")
    script.run_step(num_prefill_tokens=32, num_decode_tokens=0, num_decode_seqs=0, kind="prefill")
    script.tokens("a")
    script.run_step(num_prefill_tokens=8, num_decode_tokens=1)
    script.at(1004.5).tokens("a")
    script.at(1005.3)
    stats = script.recorder.stats()
    names = ("t", "prefill_tokens", "generated_tokens", "steps", "running", "kv_referenced", "batch_prefill")
    assert columns(stats, *names) == [
        (1000, 0, 0, 0, 0, 0, None),
        (1001, 40, 1, 2, 1, 3, 20.0),
        (1002, 0, 0, 0, 1, 3, None),
        (1003, 0, 0, 0, 1, 3, None),
        (1004, 0, 1, 0, 1, 3, None),
    ]
    assert len(script.recorder.stats(history_s=2)["history"]["t"]) == 2


def test_second_that_is_not_settled_yet_is_not_shown(script: Script) -> None:
    script.at(1001.2)
    assert script.recorder.stats()["history"]["t"] == []
    script.at(1001.25)
    assert script.recorder.stats()["history"]["t"] == [1000]


def test_event_that_comes_late_counts_in_its_own_second(script: Script) -> None:
    script.at(1001.9)
    script.arrive("a")
    late = script.event(RequestTokens, request_id="a", num_tokens=1, num_output_tokens=1)
    script.at(1002.1)
    script.recorder.consume([late])
    script.at(1003.5)
    assert columns(script.recorder.stats(), "t", "generated_tokens")[1] == (1001, 1)


def test_event_that_comes_after_its_second_was_shown_is_shown_the_next_time(script: Script) -> None:
    script.at(1001.9)
    script.arrive("a")
    late = script.event(RequestTokens, request_id="a", num_tokens=1, num_output_tokens=1)
    script.at(1003.5)
    assert columns(script.recorder.stats(), "t", "generated_tokens")[1] == (1001, 0)
    script.recorder.consume([late])
    assert columns(script.recorder.stats(), "t", "generated_tokens")[1] == (1001, 1)


def test_rates_are_over_complete_seconds_of_the_window_and_never_recover_late(script: Script) -> None:
    script.arrive("a")
    script.schedule("a")
    for second in range(1010, 1020):
        script.at(second + 0.5)
        for _ in range(5):
            script.tokens("a")
        script.run_step(num_decode_seqs=5, num_decode_tokens=5, num_prefill_tokens=10, kind="mixed")
    script.at(1020.5)
    stats = script.recorder.stats()
    assert stats["window"]["seconds"] == 20
    assert stats["window"]["decode_tokens_per_s"] == 2.5
    assert stats["window"]["prefill_tokens_per_s"] == 5.0
    assert stats["window"]["decode_batch_mean"] == 5.0
    assert stats["window"]["busy_ratio"] == pytest.approx(0.005)
    assert stats["recent"]["seconds"] == 5
    assert stats["recent"]["decode_tokens_per_s"] == 5.0
    script.at(1090.5)
    stats = script.recorder.stats()
    assert stats["window"]["seconds"] == 60
    assert stats["window"]["decode_tokens_per_s"] == 0
    assert stats["window"]["decode_batch_mean"] is None
    assert stats["window"]["itl"]["n"] == 0


def test_percentiles_over_the_window_are_blank_until_there_are_enough_samples(script: Script) -> None:
    script.arrive("a")
    for i in range(101):
        script.at(1001 + i / 100).tokens("a")
    script.at(1003.5)
    itl = script.recorder.stats()["window"]["itl"]
    assert itl["n"] == 100
    assert itl["p50_s"] == pytest.approx(0.01, rel=0.01)
    assert itl["p99_s"] == pytest.approx(0.01, rel=0.01)
    ttft = script.recorder.stats()["window"]["ttft"]
    assert ttft == {"n": 1, "p50_s": pytest.approx(1.0, rel=0.01), "p90_s": None, "p99_s": None}


def test_prefix_hit_ratio_is_cached_over_looked_up_tokens_of_the_window(script: Script) -> None:
    assert script.recorder.stats()["window"]["prefix_hit_ratio"] is None
    script.look_up("a", num_prompt_tokens=64, num_matched_tokens=48)
    script.look_up("b", num_prompt_tokens=64, num_matched_tokens=0)
    script.at(1001.5)
    assert script.recorder.stats()["window"]["prefix_hit_ratio"] == 0.375


def test_waiting_says_what_the_head_of_the_queue_waits_for(script: Script) -> None:
    script.arrive("a")
    assert script.recorder.stats()["gauges"]["blocked_on"] == "next_step"
    script.run_step(blocked_on="kv_blocks")
    script.at(1004.0)
    gauges = script.recorder.stats()["gauges"]
    assert (gauges["waiting"], gauges["blocked_on"], gauges["oldest_waiting_s"]) == (1, "kv_blocks", 4.0)
    script.schedule("a")
    assert script.recorder.stats()["gauges"]["blocked_on"] == ""


def test_a_long_gap_leaves_no_more_than_the_kept_seconds(script: Script) -> None:
    script.at(50_000.0)
    stats = script.recorder.stats(history_s=10_000)
    assert len(stats["history"]["t"]) == 300
    assert stats["history"]["t"][-1] == 49_998
