"""What a timeline keeps for whoever projects it: progress of long answers, preemptions, its place in the stream."""

from engine.events import RequestFinished, RequestPreempted, RequestResumed, RequestTokens
from observability.timeline import MAX_MARKS, ChoiceTimeline, RequestTimeline
from tests.support.event_script import Script


def progress(num_tokens: int) -> ChoiceTimeline:
    choice = ChoiceTimeline()
    for i in range(num_tokens):
        choice.add(1, float(i))
        if choice.num_tokens >= choice.next_mark:
            event = RequestTokens(seq=i, t=float(i), step=i + 1, request_id="a", num_tokens=1, num_output_tokens=i + 1)
            choice.mark(event)
    return choice


def finish(script: Script, request_id: str) -> None:
    script.say(
        RequestFinished,
        request_id=request_id,
        finish_reason="stop",
        num_prompt_tokens=10,
        num_cached_tokens=0,
        num_output_tokens=1,
        num_preemptions=1,
    )


def test_choice_is_marked_every_thirty_two_tokens() -> None:
    assert [(mark.num_tokens, mark.step, mark.t) for mark in progress(100).marks] == [
        (32, 32, 31.0),
        (64, 64, 63.0),
        (96, 96, 95.0),
    ]


def test_long_choice_has_bounded_marks_over_its_whole_length() -> None:
    marks = progress(50_000).marks
    assert MAX_MARKS // 4 <= len(marks) < MAX_MARKS
    assert marks[0].num_tokens < 2_500
    assert marks[-1].num_tokens > 48_000


def test_closed_request_is_told_once_with_its_place_in_the_stream_and_its_preemptions() -> None:
    closed: list[RequestTimeline] = []
    script = Script(on_closed=closed.append)
    script.engine_started()
    script.open("a", trace_id="1" * 32)
    script.arrive("a")
    script.step = 4
    script.at(101.0).schedule("a")
    script.at(102.0).tokens("a")
    script.step = 5
    script.at(103.0).say(RequestPreempted, request_id="a", num_lost_tokens=11, num_preemptions=1)
    script.step = 9
    script.at(105.0).say(RequestResumed, request_id="a", num_cached_tokens=0, num_recompute_tokens=11)
    finish(script, "a")
    assert closed == []  # the last byte isn't out
    script.recorder.sent_last("a", 106.0)
    script.recorder.sent_last("a", 107.0)
    assert [timeline.request_id for timeline in closed] == ["a"]
    timeline = closed[0]
    assert (timeline.first_seq, timeline.last_seq) == (2, 9)
    assert (timeline.first_step, timeline.last_step) == (4, 9)
    preemption = timeline.preemptions[0]
    assert (preemption.t, preemption.step, preemption.num_lost_tokens) == (103.0, 5, 11)
    assert (preemption.resumed, preemption.resumed_step, preemption.num_recompute_tokens) == (105.0, 9, 11)


def test_refused_request_is_told_too() -> None:
    closed: list[RequestTimeline] = []
    script = Script(on_closed=closed.append)
    script.open("a")
    script.recorder.request_refused("a", "rate_limit_exceeded", "full")
    assert [(timeline.error_type, timeline.last_seq) for timeline in closed] == [("rate_limit_exceeded", 0)]
