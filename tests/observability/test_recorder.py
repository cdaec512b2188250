"""Event script in, values out."""

import pytest

from engine.events import (
    EngineFailed,
    PrefixLookup,
    RequestFailed,
    RequestPreempted,
    RequestRejected,
    RequestResumed,
    Stalled,
)
from observability.recorder import RingSizes
from tests.support.event_script import Script


@pytest.fixture
def script() -> Script:
    script = Script()
    script.engine_started()
    return script


def one_streamed_request(script: Script) -> None:
    """Arrives at 101, scheduled 101.5, first token 102 (sent 102.25), 103, 105, finished 105, last byte 105.5."""
    script.at(101.0).open("a", trace_id="0af7651916cd43dd8448eb211c80319c")
    script.arrive("a", num_prompt_tokens=40)
    script.at(101.5).schedule("a", num_cached_tokens=16)
    script.chunk("a", 16, 24)
    script.at(102.0).tokens("a")
    script.at(102.25)
    script.recorder.sent_first("a", script.t)
    script.at(103.0).tokens("a")
    script.at(105.0).tokens("a")
    script.finish("a", num_output_tokens=3)
    script.at(105.5)
    script.recorder.sent_last("a", script.t)


def test_timeline_of_a_streamed_request_has_the_defined_quantities(script: Script) -> None:
    one_streamed_request(script)
    view = script.recorder.request("a")
    assert view is not None
    expected = {
        "ttft_s": 1.25,
        "ttft_engine_s": 1.0,
        "queue_s": 0.5,
        "first_queue_s": 0.5,
        "prefill_s": 0.5,
        "decode_s": 3.0,
        "mean_itl_s": 1.5,
        "stall_s": 2.0,
        "e2e_s": 4.5,
        "tpot_s": (4.5 - 1.25) / 2,
        "num_cached_tokens": 16,
        "num_computed_tokens": 24,
        "num_recomputed_tokens": 0,
        "num_output_tokens": 3,
        "state": "finished",
        "finish_reason": "stop",
    }
    assert {name: view[name] for name in expected} == expected


def test_metrics_of_a_streamed_request_are_observed_once_each(script: Script) -> None:
    one_streamed_request(script)
    scrape = script.scrape()
    assert scrape['pellucid_requests_total{finish_reason="stop"}'] == 1
    assert scrape["pellucid_requests_received_total"] == 1
    assert scrape["pellucid_generated_tokens_total"] == 3
    assert scrape['pellucid_prompt_tokens_total{source="cached"}'] == 16
    assert scrape['pellucid_prompt_tokens_total{source="computed"}'] == 24
    sums = {
        "time_to_first_token_seconds": (1, 1.25),
        "inter_token_latency_seconds": (2, 3.0),
        "time_per_output_token_seconds": (1, 1.625),
        "request_duration_seconds": (1, 4.5),
        "request_queue_seconds": (1, 0.5),
        "request_prefill_seconds": (1, 0.5),
        "request_decode_seconds": (1, 3.0),
    }
    for name, (count, total) in sums.items():
        assert scrape[f"pellucid_{name}_count"] == count, name
        assert scrape[f"pellucid_{name}_sum"] == pytest.approx(total), name


def test_first_token_histogram_counts_every_request_that_produced_a_token(script: Script) -> None:
    for i in range(10):
        request_id = f"one-{i}"
        script.open(request_id)
        script.arrive(request_id, max_tokens=1)
        script.at(script.t + 0.5).schedule(request_id)
        script.tokens(request_id)
        script.finish(request_id, reason="length")
        script.at(script.t + 0.25)
        script.recorder.sent_first(request_id, script.t)
        script.recorder.sent_last(request_id, script.t)
    scrape = script.scrape()
    assert scrape["pellucid_time_to_first_token_seconds_count"] == 10
    assert scrape["pellucid_time_to_first_token_seconds_sum"] == pytest.approx(7.5)
    assert scrape["pellucid_inter_token_latency_seconds_count"] == 0
    assert scrape["pellucid_time_per_output_token_seconds_count"] == 0
    assert scrape["pellucid_request_duration_seconds_count"] == 10


def test_first_token_of_an_answer_that_is_not_streamed_is_the_engines(script: Script) -> None:
    script.at(101.0).open("a", stream=False)
    script.arrive("a")
    script.at(101.5).schedule("a")
    script.at(102.0).tokens("a")
    script.at(104.0).tokens("a")
    script.finish("a", num_output_tokens=2)
    script.recorder.sent_first("a", 105.0)
    script.recorder.sent_last("a", 105.0)
    view = script.recorder.request("a")
    assert view is not None
    assert (view["ttft_s"], view["e2e_s"], view["tpot_s"]) == (1.0, 4.0, 3.0)
    assert script.scrape()["pellucid_time_to_first_token_seconds_count"] == 1


def test_first_token_of_a_client_that_left_before_it_was_sent_is_still_counted(script: Script) -> None:
    script.open("a")
    script.arrive("a")
    script.at(101.0).schedule("a")
    script.tokens("a")
    script.recorder.sent_last("a", script.t)
    script.abort("a")
    scrape = script.scrape()
    assert scrape["pellucid_time_to_first_token_seconds_count"] == 1
    assert scrape['pellucid_requests_total{finish_reason="abort"}'] == 1


def test_preempted_requests_keep_their_waiting_in_queue_ttft_and_duration(script: Script) -> None:
    def preempt(request_id: str) -> None:
        script.say(RequestPreempted, request_id=request_id, num_lost_tokens=10, num_preemptions=1)

    def resume(request_id: str) -> None:
        script.say(RequestResumed, request_id=request_id, num_cached_tokens=0, num_recompute_tokens=10)

    # before: preempted from 103 to 107, first token at 108; after: first token 103, preempted 104..107, next token 108
    script.at(101.0).open("before")
    script.arrive("before", num_prompt_tokens=12)
    script.open("after")
    script.arrive("after", num_prompt_tokens=10)
    script.at(102.0).schedule("before")
    script.chunk("before", 0, 10)
    script.schedule("after")
    script.chunk("after", 0, 10)
    script.at(103.0)
    preempt("before")
    script.tokens("after")
    script.recorder.sent_first("after", script.t)
    script.at(104.0)
    preempt("after")
    assert script.scrape()['pellucid_requests_waiting{reason="next_step"}'] == 2
    assert script.scrape()["pellucid_requests_running"] == 0
    script.at(107.0)
    resume("before")
    script.chunk("before", 0, 12, num_recomputed=10)
    resume("after")
    script.chunk("after", 0, 11, num_recomputed=10)
    script.at(108.0).tokens("before")
    script.recorder.sent_first("before", script.t)
    script.tokens("after")
    script.at(109.0).finish("before")
    script.finish("after", num_output_tokens=2)
    for request_id in ("before", "after"):
        script.recorder.sent_last(request_id, script.t)

    before, after = script.recorder.request("before"), script.recorder.request("after")
    assert before is not None
    assert after is not None
    assert (before["ttft_s"], before["queue_s"], before["first_queue_s"], before["e2e_s"]) == (7.0, 5.0, 1.0, 8.0)
    assert (after["ttft_s"], after["queue_s"], after["stall_s"], after["e2e_s"]) == (2.0, 4.0, 5.0, 8.0)
    assert (before["num_computed_tokens"], before["num_recomputed_tokens"]) == (12, 10)
    assert (after["num_computed_tokens"], after["num_recomputed_tokens"]) == (10, 10)
    scrape = script.scrape()
    assert scrape["pellucid_time_to_first_token_seconds_count"] == 2
    assert scrape["pellucid_inter_token_latency_seconds_sum"] == 5.0
    assert scrape["pellucid_preemptions_total"] == 2
    assert scrape["pellucid_recomputed_tokens_total"] == 20
    assert scrape['pellucid_prompt_tokens_total{source="computed"}'] == 22
    assert scrape['pellucid_prompt_tokens_total{source="recomputed"}'] == 20


def test_choices_of_one_request_have_their_own_gaps_and_one_first_token(script: Script) -> None:
    script.at(101.0).open("a")
    script.arrive("a", n=2)
    script.schedule("a")
    for t in (102.0, 103.0, 104.0):
        script.at(t)
        for index in (0, 1):
            script.tokens("a", index=index)
    script.recorder.sent_first("a", 104.0)
    script.finish("a", num_output_tokens=6)
    script.recorder.sent_last("a", 104.0)
    scrape = script.scrape()
    assert scrape["pellucid_inter_token_latency_seconds_count"] == 4
    assert scrape["pellucid_inter_token_latency_seconds_sum"] == 4.0
    assert scrape["pellucid_time_to_first_token_seconds_count"] == 1
    assert scrape["pellucid_generated_tokens_total"] == 6


def test_several_tokens_of_one_step_have_gaps_of_zero_after_the_first(script: Script) -> None:
    script.arrive("a")
    script.at(101.0).tokens("a", 3)
    script.at(102.0).tokens("a", 2)
    scrape = script.scrape()
    assert scrape["pellucid_inter_token_latency_seconds_count"] == 4
    assert scrape["pellucid_inter_token_latency_seconds_sum"] == 1.0


def test_gauges_after_all_are_aborted_while_idle_return_to_the_truth_without_a_step(script: Script) -> None:
    for i in range(50):
        request_id = f"r{i}"
        script.open(request_id)
        script.arrive(request_id)
        if i < 40:
            script.schedule(request_id)
            script.allocate(i, request_id)
    script.run_step(num_free_blocks=24, num_referenced_blocks=40, num_cached_blocks=0, blocked_on="max_num_seqs")
    busy = script.scrape()
    assert busy["pellucid_requests_running"] == 40
    assert busy['pellucid_requests_waiting{reason="max_num_seqs"}'] == 10
    assert busy["pellucid_kv_usage_ratio"] == 40 / 64
    script.at(script.t + 2.0)
    assert script.scrape()["pellucid_oldest_waiting_seconds"] == pytest.approx(2.01)

    for i in range(50):
        request_id = f"r{i}"
        script.recorder.sent_last(request_id, script.t)
        if i < 40:
            script.release(i, request_id, freed=i >= 8)  # the first eight were published: they stay as cached
        script.abort(request_id)
    idle = script.scrape()
    assert idle["pellucid_requests_running"] == 0
    assert idle['pellucid_requests_waiting{reason="max_num_seqs"}'] == 0
    assert idle["pellucid_oldest_waiting_seconds"] == 0
    assert idle["pellucid_kv_usage_ratio"] == 0
    assert idle["pellucid_kv_tail_waste_tokens"] == 0
    states = [idle[f'pellucid_kv_blocks{{state="{state}"}}'] for state in ("free", "referenced", "cached")]
    assert states == [56, 0, 8]
    assert idle['pellucid_requests_total{finish_reason="abort"}'] == 50
    assert idle["pellucid_request_duration_seconds_count"] == 50
    gauges = script.recorder.stats()["gauges"]
    assert (gauges["running"], gauges["waiting"], gauges["in_flight"], gauges["blocked_on"]) == (0, 0, 0, "")


def test_every_outcome_keeps_received_equal_to_ended_and_in_flight(script: Script) -> None:
    for name in ("stopped", "long", "gone", "broken", "refused", "alive", "left", "shed"):
        script.open(name)
    for name in ("stopped", "long", "gone", "broken", "refused", "alive"):
        script.arrive(name)
    script.finish("stopped")
    script.finish("long", reason="length")
    script.abort("gone")
    script.say(RequestFailed, request_id="broken", error_type="internal_error", message="NaN", num_output_tokens=0)
    script.say(RequestRejected, request_id="refused", error_type="invalid_request_error", message="too long")
    script.recorder.request_abandoned("left", "client gone")
    script.recorder.request_refused("shed", "rate_limit_exceeded")
    script.recorder.rejected("authentication_error")
    script.recorder.rejected("a type nobody declared")
    counters = script.recorder.stats()["counters"]
    assert counters["requests_received"] == 10
    assert counters["requests_finished"] == 2
    assert counters["requests_aborted"] == 2
    assert counters["requests_failed"] == 1
    assert counters["requests_rejected"] == 4
    assert script.recorder.stats()["gauges"]["in_flight"] == 1
    scrape = script.scrape()
    rejected = {name: value for name, value in scrape.items() if "rejected" in name and value}
    assert rejected == {
        'pellucid_requests_rejected_total{error_type="invalid_request_error"}': 1,
        'pellucid_requests_rejected_total{error_type="rate_limit_exceeded"}': 1,
        'pellucid_requests_rejected_total{error_type="authentication_error"}': 1,
        'pellucid_requests_rejected_total{error_type="other"}': 1,
    }


def test_events_about_a_request_that_has_ended_change_nothing(script: Script) -> None:
    script.open("a")
    script.arrive("a")
    script.abort("a")
    script.abort("a")
    script.finish("a")
    script.recorder.sent_last("a", script.t)
    scrape = script.scrape()
    assert scrape['pellucid_requests_total{finish_reason="abort"}'] == 1
    assert scrape['pellucid_requests_total{finish_reason="stop"}'] == 0


def test_engine_that_died_leaves_failed_requests_and_empty_gauges_until_it_is_back(script: Script) -> None:
    for name in ("a", "b"):
        script.open(name)
        script.arrive(name)
    script.schedule("a")
    script.allocate(0, "a")
    reason = "the engine process died (signal 9)"
    for name in ("a", "b"):
        script.say(RequestFailed, request_id=name, error_type="internal_error", message=reason, num_output_tokens=0)
    script.say(EngineFailed, error=reason)
    scrape = script.scrape()
    assert scrape['pellucid_requests_total{finish_reason="error"}'] == 2
    assert scrape["pellucid_requests_running"] == 0
    assert scrape["pellucid_engine_up"] == 0
    assert scrape['pellucid_kv_blocks{state="referenced"}'] == 0
    assert script.recorder.stats()["engine"]["state"] == "down"
    view = script.recorder.request("a")
    assert view is not None
    assert (view["state"], view["message"]) == ("failed", reason)

    script.new_life()
    script.engine_started(num_blocks=32)
    scrape = script.scrape()
    assert scrape["pellucid_engine_up"] == 1
    assert scrape["pellucid_engine_restarts_total"] == 1
    assert scrape['pellucid_kv_blocks{state="free"}'] == 32
    assert scrape['pellucid_events_dropped_total{where="stream"}'] == 0


def test_step_time_is_split_into_stages_that_sum_to_the_wall(script: Script) -> None:
    script.at(110.0).run_step(0.08)
    script.at(111.0).run_step(0.08, kind="mixed", num_prefill_tokens=32)
    script.run_step(0.0, kind="empty", num_decode_seqs=0, num_decode_tokens=0)
    scrape = script.scrape()
    stage = {name: scrape[f'pellucid_engine_stage_seconds_total{{stage="{name}"}}'] for name in ("execute", "other")}
    assert stage == pytest.approx({"execute": 0.08, "other": 0.02})
    total = sum(value for name, value in scrape.items() if name.startswith("pellucid_engine_stage_seconds_total"))
    assert total == pytest.approx(111.08 - 110.0)
    assert scrape["pellucid_engine_steps_total"] == 3
    assert scrape['pellucid_step_duration_seconds_count{kind="decode"}'] == 1
    assert scrape['pellucid_step_duration_seconds_sum{kind="mixed"}'] == pytest.approx(0.08)
    assert scrape['pellucid_step_tokens_sum{phase="prefill"}'] == 32
    assert scrape["pellucid_decode_batch_size_count"] == 2


def test_prefix_lookups_are_counted_once_per_admission_with_the_cause(script: Script) -> None:
    script.arrive("a", num_prompt_tokens=64)
    script.say(PrefixLookup, request_id="a", num_prompt_tokens=64, num_matched_tokens=48, why="diverged")
    script.say(PrefixLookup, request_id="a", num_prompt_tokens=64, num_matched_tokens=63, why="tail")
    scrape = script.scrape()
    assert scrape["pellucid_prefix_cache_queries_tokens_total"] == 128
    assert scrape["pellucid_prefix_cache_hit_tokens_total"] == 111
    assert scrape['pellucid_prefix_miss_total{why="diverged"}'] == 1


def test_missing_events_are_counted_as_dropped(script: Script) -> None:
    for _ in range(3):
        script.event(Stalled, request_id="a", cause="", num_steps=3, num_waiting=1, num_running=0)
    script.say(Stalled, request_id="a", cause="", num_steps=3, num_waiting=1, num_running=0)
    scrape = script.scrape()
    assert scrape['pellucid_events_dropped_total{where="stream"}'] == 3
    assert scrape["pellucid_engine_stalls_total"] == 1


def test_rings_drop_the_oldest_and_count_it() -> None:
    script = Script(ring_sizes=RingSizes(events=8, steps=2, requests=2))
    script.engine_started()
    for i in range(3):
        script.arrive(f"r{i}")
        script.run_step()
        script.finish(f"r{i}")
    rings = script.recorder.stats()["rings"]
    assert rings["steps"] == {"size": 2, "capacity": 2, "overwritten": 1}
    assert rings["requests"] == {"size": 2, "capacity": 2, "overwritten": 1}
    assert rings["events"]["size"] == 8
    assert rings["events"]["overwritten"] == 1 + 3 * 6 - 8
    assert script.recorder.request("r0") is None
    assert [step["step"] for step in script.recorder.steps()] == [2, 3]
    assert [step["step"] for step in script.recorder.steps(since=2)] == [3]
    assert [row["request_id"] for row in script.recorder.requests()["recent"]] == ["r2", "r1"]


def test_heartbeat_age_is_the_followed_one_and_else_the_time_since_the_last_event(script: Script) -> None:
    script.at(130.0)
    assert script.scrape()["pellucid_engine_heartbeat_age_seconds"] == 30.0
    script.recorder.follow_heartbeat(lambda: 0.25)
    assert script.scrape()["pellucid_engine_heartbeat_age_seconds"] == 0.25
    assert script.recorder.stats()["engine"]["heartbeat_age_s"] == 0.25


def test_opening_a_request_twice_is_refused(script: Script) -> None:
    script.open("a")
    with pytest.raises(ValueError, match="was opened before"):
        script.open("a")


def test_requests_in_the_inbox_of_an_engine_that_hangs_wait_for_the_next_step(script: Script) -> None:
    for request_id in ("a", "b"):
        script.open(request_id)
        script.recorder.request_encoded(request_id, script.t)
    script.at(script.t + 3.0)
    samples, gauges = script.scrape(), script.recorder.stats()["gauges"]
    assert samples['pellucid_requests_waiting{reason="next_step"}'] == 2
    assert samples["pellucid_requests_running"] == 0
    assert samples["pellucid_oldest_waiting_seconds"] == 3.0
    assert (gauges["waiting"], gauges["blocked_on"]) == (2, "next_step")
    script.arrive("a")
    script.schedule("a")
    samples = script.scrape()
    assert samples['pellucid_requests_waiting{reason="next_step"}'] == 1
    assert samples["pellucid_requests_running"] == 1


def test_end_that_was_scraped_is_not_counted_anew_when_its_client_is_told_otherwise(script: Script) -> None:
    script.open("a")
    script.arrive("a")
    script.tokens("a")
    script.finish("a", reason="length")
    assert script.scrape()['pellucid_requests_total{finish_reason="length"}'] == 1
    script.recorder.answer_taken("a", script.t, script.t, finish_reason="stop")
    samples = script.scrape()
    assert samples['pellucid_requests_total{finish_reason="length"}'] == 1
    assert samples['pellucid_requests_total{finish_reason="stop"}'] == 0
