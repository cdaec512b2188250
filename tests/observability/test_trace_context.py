"""Which trace a request belongs to."""

import pytest

from observability.trace_context import Sampling, TraceContexts
from tests.support.span_script import PARENT

TRACE_ID, SPAN_ID = PARENT.split("-")[1:3]


def test_client_trace_is_continued_with_a_span_of_ours_and_its_tracestate() -> None:
    context = TraceContexts().incoming([PARENT], ["vendor=1", "other=2"])
    assert context.trace_id == TRACE_ID
    assert context.parent is not None
    assert f"{context.parent.span_id:016x}" == SPAN_ID
    assert context.span_id not in (SPAN_ID, "0" * 16)
    assert context.span.trace_state.to_header() == "vendor=1,other=2"
    assert context.traceresponse == f"00-{TRACE_ID}-{context.span_id}-01"


@pytest.mark.parametrize(
    "headers",
    [
        [],
        [PARENT, PARENT],
        [""],
        ["00-" + "0" * 32 + f"-{SPAN_ID}-01"],
        [f"00-{TRACE_ID}-" + "0" * 16 + "-01"],
        [PARENT.upper().replace("00-", "00-", 1)],
        [PARENT[:-3]],
        [f"ff-{TRACE_ID}-{SPAN_ID}-01"],
        [PARENT + "-more"],
        ["00-" + "x" * 4000],
        ["☃"],
    ],
)
def test_missing_or_malformed_header_starts_a_new_sampled_trace(headers: list[str]) -> None:
    contexts = TraceContexts()
    context = contexts.incoming(headers, ["vendor=1"])
    assert context.parent is None
    assert context.is_sampled
    assert context.trace_id not in (TRACE_ID, "0" * 32)
    assert not context.span.trace_state
    assert contexts.incoming(headers, []).trace_id != context.trace_id


def test_later_version_with_more_fields_is_understood() -> None:
    assert TraceContexts().incoming([f"01-{TRACE_ID}-{SPAN_ID}-01-more"], []).trace_id == TRACE_ID


def test_bad_tracestate_is_dropped_and_the_trace_kept() -> None:
    context = TraceContexts().incoming([PARENT], ["not a pair"])
    assert (context.trace_id, bool(context.span.trace_state)) == (TRACE_ID, False)


def test_sampling_flag_of_the_client_is_honoured_whatever_our_ratio() -> None:
    none = TraceContexts(Sampling(0.0))
    assert none.incoming([PARENT], []).is_sampled
    assert not none.incoming([], []).is_sampled
    assert none.incoming([], []).traceresponse.endswith("-00")
    assert not TraceContexts(Sampling(1.0)).incoming([PARENT[:-1] + "0"], []).is_sampled


def test_sampler_that_does_not_follow_the_parent_decides_by_the_trace_id() -> None:
    assert TraceContexts(Sampling(1.0, follows_parent=False)).incoming([PARENT[:-1] + "0"], []).is_sampled
    half = TraceContexts(Sampling(0.5))
    kept = sum(half.incoming([], []).is_sampled for _ in range(2000))
    assert 800 < kept < 1200
