"""The end of a lost engine's event stream, written in its place."""

from collections.abc import Sequence

import pytest

from engine import event_ledger
from engine.clock import ManualClock
from engine.event_ledger import EventLedger, emit_arrived
from engine.events import (
    EngineFailed,
    EngineStarted,
    EngineStopped,
    Event,
    EventLog,
    RequestAborted,
    RequestArrived,
    RequestFailed,
    RequestFinished,
    RequestTokens,
)
from tests.support.async_engine import make_request


def start_stream(log: EventLog) -> None:
    log.emit(
        EngineStarted,
        model="m",
        executor="e",
        block_size=1,
        num_blocks=1,
        max_num_seqs=1,
        max_num_batched_tokens=1,
        max_model_len=1,
        prefix_cache=True,
    )


def finish(log: EventLog, request_id: str) -> None:
    log.emit(
        RequestFinished,
        request_id=request_id,
        finish_reason="stop",
        num_prompt_tokens=1,
        num_cached_tokens=0,
        num_output_tokens=1,
        num_preemptions=0,
    )


def names(events: Sequence[Event]) -> list[str]:
    return [type(event).__name__ for event in events]


def test_ledger_close_after_a_loss_goes_on_with_seq_and_step() -> None:
    clock = ManualClock(5.0)
    log, ledger = EventLog(clock), EventLedger(clock)
    start_stream(log)
    log.step = 17
    request = make_request("a")
    ledger.sent(request)
    emit_arrived(log, request)
    log.emit(RequestTokens, request_id="a", index=0, num_tokens=3, num_output_tokens=3)
    log.emit(RequestTokens, request_id="a", index=1, num_tokens=2, num_output_tokens=2)
    ledger.seen(log.drain(), [])
    clock.advance(1.0)
    assert ledger.close("killed", error_type="internal_error") == [
        RequestFailed(
            seq=5, t=6.0, step=17, request_id="a", error_type="internal_error", message="killed", num_output_tokens=5
        ),
        EngineFailed(seq=6, t=6.0, step=17, error="killed", lost=True),
    ]
    assert ledger.num_unended == 0


def test_ledger_close_request_the_engine_never_spoke_of_gets_its_arrival_too() -> None:
    clock = ManualClock()
    log, ledger = EventLog(clock), EventLedger(clock)
    start_stream(log)
    ledger.seen(log.drain(), [])
    ledger.sent(make_request("a", n=2, prompt=[1, 2]))
    arrived, failed, ended = ledger.close("killed", error_type="internal_error")
    assert isinstance(arrived, RequestArrived)
    assert (arrived.seq, arrived.num_prompt_tokens, arrived.n) == (2, 2, 2)
    assert isinstance(failed, RequestFailed)
    assert isinstance(ended, EngineFailed)


def test_ledger_ended_requests_are_returned_and_need_nothing_more() -> None:
    clock = ManualClock()
    log, ledger = EventLog(clock), EventLedger(clock)
    start_stream(log)
    for request_id in ("a", "b"):
        ledger.sent(make_request(request_id))
        emit_arrived(log, make_request(request_id))
    finish(log, "a")
    ledger.seen(log.drain(), ["a"])
    assert "a" not in ledger
    assert "b" in ledger
    assert [getattr(e, "request_id", "") for e in ledger.close("x", error_type="internal_error")] == ["b", ""]


def test_ledger_events_of_requests_it_does_not_know_are_ignored() -> None:
    clock = ManualClock()
    log, ledger = EventLog(clock), EventLedger(clock)
    finish(log, "never sent")
    log.emit(RequestTokens, request_id="never sent", index=0, num_tokens=1, num_output_tokens=1)
    ledger.seen(log.drain(), [])


def test_ledger_close_on_purpose_aborts() -> None:
    clock = ManualClock()
    log, ledger = EventLog(clock), EventLedger(clock)
    start_stream(log)
    emit_arrived(log, make_request("a"))
    ledger.sent(make_request("a"))
    ledger.seen(log.drain(), [])
    events = ledger.close("closed", error_type="")
    assert names(events) == ["RequestAborted", "EngineFailed"]
    assert isinstance(events[0], RequestAborted)
    assert events[0].reason == "closed"


def test_ledger_close_after_an_end_in_order_adds_nothing() -> None:
    clock = ManualClock()
    log, ledger = EventLog(clock), EventLedger(clock)
    start_stream(log)
    log.emit(EngineStopped, reason="closed")
    ledger.seen(log.drain(), [])
    assert ledger.close("gone", error_type="internal_error") == []


def test_ledger_close_of_a_life_that_never_began_adds_nothing() -> None:
    assert EventLedger(ManualClock()).close("died while loading", error_type="internal_error") == []


def test_ledger_close_twice_adds_nothing_the_second_time() -> None:
    clock = ManualClock()
    log, ledger = EventLog(clock), EventLedger(clock)
    start_stream(log)
    ledger.seen(log.drain(), [])
    assert names(ledger.close("x", error_type="internal_error")) == ["EngineFailed"]
    assert ledger.close("x", error_type="internal_error") == []


def test_ledger_of_an_id_that_is_used_again_counts_what_came_since(monkeypatch: pytest.MonkeyPatch) -> None:
    for most in (0, 100):  # reads each message at once; reads none before the end
        monkeypatch.setattr(event_ledger, "MAX_UNREAD", most)
        log, ledger = EventLog(ManualClock()), EventLedger(ManualClock())
        for num_tokens in (3, 2):
            request = make_request("a")
            ledger.sent(request)
            emit_arrived(log, request)
            log.emit(RequestTokens, request_id="a", index=0, num_tokens=num_tokens, num_output_tokens=num_tokens)
            ended = []
            if num_tokens == 3:
                finish(log, "a")
                ended = ["a"]
            ledger.seen(log.drain(), ended)
        failed, last = ledger.close("killed", error_type="internal_error")
        assert isinstance(failed, RequestFailed)
        assert (failed.num_output_tokens, failed.seq) == (2, 6)
        assert isinstance(last, EngineFailed)
