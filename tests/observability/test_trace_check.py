"""The trace checker: sound streams pass, and each invariant broken by one event is named at that event."""

from pathlib import Path

import msgspec
import pytest

from engine.events import (
    BlockEvicted,
    CacheCleared,
    EngineFailed,
    EngineStarted,
    EngineStopped,
    Event,
    PrefixLookup,
    RequestAborted,
    RequestFailed,
    RequestPreempted,
    RequestResumed,
    SequenceFinished,
    Stalled,
)
from observability.trace_check import check_events, check_trace
from observability.trace_codec import UnknownEvent
from observability.trace_file import TraceWriter
from observability.trace_report import TraceReport
from tests.support.trace_script import TraceScript, header, one_request


def check(script: TraceScript) -> TraceReport:
    return check_events(header(), script.events)  # type: ignore[arg-type]


def reason(script: TraceScript) -> str:
    """Return why the stream is broken, having made sure that its last event is the one that breaks it."""
    report = check(script)
    assert report.violation is not None, report.to_text()
    assert report.violation.seq == script.events[-1].seq, report.to_text()
    return report.violation.reason


def running(*, n: int = 1, max_tokens: int = 1) -> TraceScript:
    """Return a stream within step 1: `a` has 5 prompt tokens, holds blocks 0 and 1, and has computed them."""
    script = TraceScript().arrive("a", num_prompt=5, n=n, max_tokens=max_tokens).step()
    return script.admit("a").allocate(0, "a", 0).allocate(1, "a", 1).chunk("a", 0, 5)


# --- sound -------------------------------------------------------------------------------------------------------


def test_report_of_a_sound_stream_counts_everything() -> None:
    report = check(one_request())
    assert report.ok, report.to_text()
    assert (report.num_events, report.num_steps, report.num_received, report.num_in_flight) == (16, 1, 1, 0)
    assert report.num_ended == {"finished": 1}
    assert report.num_blocks == {"free": 5, "referenced": 0, "cached": 1, "lost": 0, "unknown": 0}
    assert report.num_kv_events == {
        "block_allocated": 2,
        "block_published": 1,
        "block_released": 2,
        "block_freed": 1,
    }


def test_stream_with_a_prefix_hit_passes() -> None:
    script = one_request().arrive("b", num_prompt=6).step()
    script.admit("b", cached=4).share(0, "b", 0, refs=1).allocate(1, "b", 1).chunk("b", 4, 2)
    script.first_token("b").finish("b", num_prompt=6, cached=4).release(1, "b").free(1).release(0, "b")
    assert check(script.step_done(prefill=2, generated=1, blocks=(5, 0, 1))).ok


def test_stream_with_a_partial_prefix_copied_passes() -> None:
    script = one_request().arrive("b", num_prompt=6).step()
    script.admit("b", cached=3).share(0, "b", 0, refs=1).allocate(1, "b", 0).copy(0, 1, "b", num_tokens=3)
    script.release(0, "b").allocate(2, "b", 1).chunk("b", 3, 3).publish(1, "b").first_token("b")
    script.finish("b", num_prompt=6, cached=3).release(2, "b").free(2).release(1, "b")
    assert check(script.step_done(prefill=3, generated=1, blocks=(4, 0, 2))).ok


def test_stream_with_forks_and_a_copied_tail_passes() -> None:
    script = running(n=2, max_tokens=2).publish(0, "a")
    script.share(0, "a", 0, refs=2, index=1).share(1, "a", 1, refs=2, index=1)
    script.first_token("a", 0).first_token("a", 1).step_done(prefill=5, generated=2, blocks=(4, 2, 0))
    script.step().allocate(2, "a", 1).copy(1, 2, "a", num_tokens=1).release(1, "a", refs=1)
    script.token("a", 2, 0).token("a", 2, 1).finish("a", num_prompt=5, outputs=2, n=2)
    script.release(2, "a").free(2).release(0, "a", refs=1)
    script.release(1, "a", index=1).free(1).release(0, "a", index=1)
    report = check(script.step_done(decode=2, generated=2, blocks=(5, 0, 1)))
    assert report.ok, report.to_text()


def test_stream_with_eviction_and_reset_passes() -> None:
    script = one_request().evict(0)
    assert check(script).ok
    script = one_request().say(BlockEvicted, block_id=0, reason="reset").free(0).say(CacheCleared, num_blocks=1)
    assert check(script).ok


def test_stream_with_preemption_and_resume_passes_and_counts_a_futile_resume() -> None:
    script = running().publish(0, "a")
    for number in (1, 2):
        script.say(RequestPreempted, request_id="a", num_lost_tokens=5, num_preemptions=number)
        script.release(1, "a").free(1).release(0, "a")
        script.say(RequestResumed, request_id="a", num_cached_tokens=4, num_recompute_tokens=1)
        script.share(0, "a", 0, refs=1).allocate(1, "a", 1)
    script.chunk("a", 4, 1).first_token("a")
    report = check(script)
    assert report.ok, report.to_text()
    assert (report.num_preemptions, report.num_futile_resumes) == (2, 1)


def test_stream_with_an_unknown_event_keeps_going_and_counts_it() -> None:
    events: list[Event | UnknownEvent] = list(one_request().events)
    seq = events[-1].seq + 1
    events.append(UnknownEvent(type="thought", seq=seq, t=9.0, step=1, fields={}))
    report = check_events(header(), events)  # type: ignore[arg-type]
    assert report.ok
    assert report.num_unknown_events == 1


def started(script: TraceScript, **changes: object) -> TraceScript:
    fields: dict[str, object] = {
        "model": "scripted",
        "executor": "scripted",
        "block_size": 4,
        "num_blocks": 6,
        "max_num_seqs": 4,
        "max_num_batched_tokens": 16,
        "max_model_len": 64,
        "prefix_cache": True,
    }
    return script.say(EngineStarted, **{**fields, **changes})


def test_stream_of_a_lost_engine_and_its_successor_passes() -> None:
    """The blocks of a process that is gone are gone; the next life starts at 1 with a pool of its own."""
    script = running().say(RequestFailed, request_id="a", error_type="e", message="m", num_output_tokens=0)
    script.say(EngineFailed, error="killed", lost=True)
    events = [*script.events, *started(TraceScript(first_t=2.0)).events]
    second = one_request(TraceScript(first_t=3.0, first_seq=2)).events
    report = check_events(header(), [*events, *second])  # type: ignore[arg-type]
    assert report.ok, report.to_text()
    assert (report.num_lives, report.num_received) == (2, 2)
    assert report.num_ended == {"failed": 1, "finished": 1}


def test_stream_that_goes_on_after_a_failed_step_passes() -> None:
    script = running().say(EngineFailed, error="a step raised").release(1, "a").free(1).release(0, "a").free(0)
    script.say(RequestFailed, request_id="a", error_type="e", message="m", num_output_tokens=0)
    script.arrive("b", num_prompt=5).step().admit("b").allocate(0, "b", 0).allocate(1, "b", 1).chunk("b", 0, 5)
    report = check(script)
    assert report.ok, report.to_text()
    assert report.num_lives == 1


# --- broken, by one event ----------------------------------------------------------------------------------------


def test_seq_with_a_gap_is_named() -> None:
    events = one_request().events
    report = check_events(header(), [*events[:4], *events[5:]])  # type: ignore[arg-type]
    assert report.violation is not None
    assert report.violation.seq == 6
    assert report.violation.reason == "`seq` must be gapless: 6 follows 4"


def test_time_running_backwards_is_named() -> None:
    events = one_request().events
    events[3] = msgspec.structs.replace(events[3], t=0.1)
    report = check_events(header(), events)  # type: ignore[arg-type]
    assert report.violation is not None
    assert report.violation.seq == 4
    assert "time runs backwards" in report.violation.reason


def test_block_allocated_twice_is_named() -> None:
    script = running().arrive("b", num_prompt=1).admit("b").allocate(1, "b", 0)
    assert reason(script) == "block 1 is allocated while it is referenced by choice 0 of request 'a'"


def test_cached_block_allocated_without_eviction_is_named() -> None:
    script = one_request().arrive("b", num_prompt=1).step().admit("b").allocate(0, "b", 0)
    assert reason(script) == "block 0 is allocated while it is cached"


def test_table_entry_skipped_is_named() -> None:
    assert "became entry 3 of choice 0 of request 'a', whose table has 2" in reason(running().allocate(2, "a", 3))


def test_table_entry_replaced_without_a_copy_is_named() -> None:
    script = running().allocate(2, "a", 1).first_token("a").step_done(prefill=5, generated=1, blocks=(3, 3, 0))
    assert "replaced block 1 by 2 in its table and copied nothing" in reason(script)


def test_copy_of_another_block_than_the_replaced_one_is_named() -> None:
    assert "replaced block 1 by 2, but copies 0 to 2" in reason(
        running().allocate(2, "a", 1).copy(0, 2, "a", num_tokens=1)
    )


def test_free_block_shared_is_named() -> None:
    script = one_request().arrive("b", num_prompt=5).step().admit("b", cached=4).share(3, "b", 0, refs=1)
    assert reason(script) == "block 3 is shared with choice 0 of request 'b' while it is free"


def test_wrong_ref_count_is_named() -> None:
    script = one_request().arrive("b", num_prompt=5).step().admit("b", cached=4).share(0, "b", 0, refs=2)
    assert reason(script) == "block 0 says ref_count 2, but 1 tables hold it"


def test_block_published_before_it_is_written_is_named() -> None:
    script = TraceScript().arrive("a", num_prompt=5).step().admit("a").allocate(0, "a", 0).publish(0, "a")
    assert "block 0 is published before it is written: it ends at token 4, request 'a' has 0" in reason(script)


def test_block_published_by_another_request_is_named() -> None:
    script = running().arrive("b", num_prompt=1).publish(0, "b")
    assert reason(script) == "block 0 is published by 'b' while it is referenced by choice 0 of request 'a'"


def test_block_published_below_an_unpublished_one_is_named() -> None:
    script = TraceScript().arrive("a", num_prompt=8).step().admit("a").allocate(0, "a", 0).allocate(1, "a", 1)
    assert "below block 0, which is" in reason(script.chunk("a", 0, 8).publish(1, "a", parent=0))


def test_block_published_with_a_wrong_parent_hash_is_named() -> None:
    script = TraceScript().arrive("a", num_prompt=8).step().admit("a").allocate(0, "a", 0).allocate(1, "a", 1)
    script.chunk("a", 0, 8).publish(0, "a").publish(1, "a", parent=0, parent_hash="h9")
    assert "parent hash h9, but block 0 was published with h0" in reason(script)


def test_block_released_by_another_request_is_named() -> None:
    script = running().arrive("b", num_prompt=1).release(0, "b")
    assert "released by choice 0 of request 'b', which doesn't hold it" in reason(script)


def test_block_evicted_in_use_is_named() -> None:
    script = running().publish(0, "a").say(BlockEvicted, block_id=0, reason="capacity")
    assert reason(script) == "block 0 is evicted while it is referenced by choice 0 of request 'a'"


def test_block_evicted_above_others_is_named() -> None:
    script = TraceScript().arrive("a", num_prompt=9).step().admit("a")
    for number in range(3):
        script.allocate(number, "a", number)
    script.chunk("a", 0, 9).publish(0, "a").publish(1, "a", parent=0).first_token("a").finish("a", num_prompt=9)
    script.release(2, "a").free(2).release(1, "a").release(0, "a")
    script.say(BlockEvicted, block_id=0, reason="capacity")
    assert reason(script) == "block 0 is evicted while 1 published blocks stand below it"


def test_block_freed_twice_is_named() -> None:
    assert reason(one_request().free(1)) == "block 1 is freed while it is free"


def test_block_freed_in_use_is_named() -> None:
    assert "block 0 is freed while it is referenced" in reason(running().free(0))


def test_block_leaked_at_the_end_of_a_request_is_named_at_the_step_end() -> None:
    script = running().first_token("a").finish("a", num_prompt=5).release(1, "a").free(1).release(0, "a")
    script.step_done(prefill=5, generated=1, blocks=(5, 1, 0))
    assert reason(script) == "block 0 is lost: nobody holds it, it is neither cached nor free"


def test_table_kept_by_an_ended_request_is_named_at_the_step_end() -> None:
    script = running().first_token("a").finish("a", num_prompt=5).step_done(prefill=5, generated=1, blocks=(4, 2, 0))
    assert reason(script) == "choice 0 of request 'a' ended and still holds blocks [0, 1]"


def test_table_released_in_part_is_named_at_the_step_end() -> None:
    script = running().first_token("a").release(1, "a").free(1).step_done(prefill=5, generated=1, blocks=(5, 1, 0))
    assert reason(script) == "choice 0 of request 'a' released a part of its table only; it holds [0]"


def test_block_given_to_a_table_being_released_is_named() -> None:
    script = running().release(1, "a").free(1).allocate(2, "a", 1)
    assert "gets block 2 while it releases its table [0]" in reason(script)


def test_step_counts_that_disagree_are_named() -> None:
    script = running().first_token("a").step_done(prefill=5, generated=1, blocks=(3, 3, 0))
    assert "says 3 free + 3 referenced + 0 cached blocks; the trace has 4 + 2 + 0" in reason(script)


def test_step_over_its_budget_is_named() -> None:
    script = TraceScript().arrive("a", num_prompt=17).step().step_done(prefill=17, blocks=(6, 0, 0))
    assert reason(script) == "the step computed 17 tokens, its budget is 16"


def test_step_tokens_that_disagree_with_its_chunks_are_named() -> None:
    script = running().first_token("a").step_done(prefill=4, generated=1, blocks=(4, 2, 0))
    assert reason(script) == "the step says 4 prefill tokens, its events add up to 5"


def test_request_scheduled_before_it_was_queued_is_named() -> None:
    assert reason(TraceScript().admit("a")) == "request 'a' got an event before it arrived"


def test_request_event_after_its_end_is_named() -> None:
    script = one_request().say(RequestAborted, request_id="a", reason="late", num_output_tokens=1)
    assert reason(script) == "request 'a' got an event after it ended with `finished`"


def test_request_whose_whole_prompt_came_from_the_cache_is_named() -> None:
    script = one_request().arrive("b", num_prompt=4).step().admit("b", cached=4)
    assert "takes 4 of its 4 prompt tokens from the cache" in reason(script)


def test_more_tokens_from_the_cache_than_the_lookup_found_are_named() -> None:
    script = one_request().arrive("b", num_prompt=6).step()
    script.say(PrefixLookup, request_id="b", num_prompt_tokens=6, num_matched_tokens=3, why="tail")
    assert reason(script.admit("b", cached=4)) == "request 'b' takes 4 tokens from the cache, its lookup found 3"


def test_chunk_that_skips_tokens_is_named() -> None:
    script = TraceScript().arrive("a", num_prompt=9).step().admit("a").chunk("a", 2, 3)
    assert "computes a chunk from position 2, but has 0 computed tokens" in reason(script)


def test_token_before_the_prompt_is_computed_is_named() -> None:
    script = TraceScript().arrive("a", num_prompt=9).step().admit("a").chunk("a", 0, 5).first_token("a")
    assert "got a token with 5 of its 9 tokens computed" in reason(script)


def test_more_tokens_than_asked_for_are_named() -> None:
    assert "has 2 output tokens, more than max_tokens 1" in reason(running().first_token("a").token("a", 2))


def test_finish_with_a_choice_missing_is_named() -> None:
    script = running(n=2).first_token("a").finish("a", num_prompt=5)
    assert reason(script) == "request 'a' finishes with 1 of its 2 choices finished"


def test_engine_starting_after_one_that_left_requests_in_flight_is_named() -> None:
    script = running().say(EngineFailed, error="killed", lost=True)
    events = [*script.events, *started(TraceScript(first_t=2.0)).events]
    report = check_events(header(), events)  # type: ignore[arg-type]
    assert report.violation is not None
    assert report.violation.event_type == "engine_started"
    assert "the one before ended with 1 in flight" in report.violation.reason


def test_engine_starting_while_another_runs_is_named() -> None:
    events = [*one_request().events, *started(TraceScript(first_t=2.0)).events]
    report = check_events(header(), events)  # type: ignore[arg-type]
    assert report.violation is not None
    assert report.violation.reason == "`seq` must be gapless: 1 follows 16"


def test_engine_with_another_pool_than_the_header_is_named() -> None:
    assert "starts with 7 blocks of 4 tokens, the header says 6 of 4" in reason(started(TraceScript(), num_blocks=7))


def test_request_that_never_ends_although_its_choices_have_is_named_at_the_step_end() -> None:
    script = running().first_token("a")
    script.say(SequenceFinished, request_id="a", index=0, finish_reason="length", num_output_tokens=1)
    script.release(1, "a").free(1).release(0, "a").free(0).step_done(prefill=5, generated=1, blocks=(6, 0, 0))
    assert reason(script) == "every choice of request 'a' has finished, but the request hasn't ended"


def test_engine_stopping_with_requests_in_flight_is_named() -> None:
    assert "stops with 1 requests in flight" in reason(running().say(EngineStopped, reason="done"))


# --- files, text -------------------------------------------------------------------------------------------------


def write(path: Path, events: list[Event], **changes: object) -> Path:
    with TraceWriter(path, header(**changes)) as writer:
        writer.write(events)
    return path


def test_check_trace_reads_a_file_and_says_ok(tmp_path: Path) -> None:
    report = check_trace(write(tmp_path / "a.jsonl.gz", one_request().events))
    assert report.ok
    assert report.to_text().splitlines()[-1] == "ok: every invariant holds"


def test_check_trace_names_the_first_broken_event_in_its_text(tmp_path: Path) -> None:
    script = one_request().free(1)
    text = check_trace(write(tmp_path / "a.jsonl", script.events)).to_text()
    assert text.splitlines()[-1] == "BROKEN at event 17 `block_freed`, step 1: block 1 is freed while it is free"


def test_check_trace_of_a_ring_that_lost_its_beginning_adopts_what_it_sees(tmp_path: Path) -> None:
    script = one_request().arrive("b", num_prompt=6).step()
    script.admit("b", cached=4).share(0, "b", 0, refs=1).allocate(1, "b", 1).chunk("b", 4, 2)
    script.first_token("b").finish("b", num_prompt=6, cached=4).release(1, "b").free(1).release(0, "b")
    events = script.step_done(prefill=2, generated=1, blocks=(5, 0, 1)).events
    for start in range(1, len(events)):
        path = write(tmp_path / "a.jsonl", events[start:], num_dropped_events=start)
        report = check_trace(path)
        assert report.ok, (start, report.to_text())
        assert not report.from_start
    broken = script.free(1).events
    report = check_trace(write(tmp_path / "a.jsonl", broken[10:], num_dropped_events=10))
    assert report.violation is not None
    assert report.violation.seq == broken[-1].seq


def test_check_trace_of_a_file_without_events_is_ok(tmp_path: Path) -> None:
    report = check_trace(write(tmp_path / "a.jsonl", []))
    assert report.ok
    assert report.num_events == 0


def test_report_is_json_and_lists_stalls() -> None:
    script = one_request().say(Stalled, request_id="z", cause="kv_blocks", num_steps=3, num_waiting=1, num_running=0)
    report = check(script)
    assert msgspec.json.decode(msgspec.json.encode(report))["num_stalls"] == 1
    assert "stalls: 1" in report.to_text()


@pytest.mark.parametrize("cut", range(1, 17))
def test_stream_cut_anywhere_is_not_blamed_for_what_is_still_to_come(cut: int) -> None:
    events = one_request().events[:cut]
    report = check_events(header(), events)  # type: ignore[arg-type]
    assert report.ok, report.to_text()
