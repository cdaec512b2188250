"""A request's timeline in the form of `/telemetry/requests` (observability/request_form.py)."""

from dataclasses import dataclass
from typing import Any

from observability.attribution import attribution_of
from observability.cache_explanation import explain
from observability.request_form import (
    DETAIL_SCHEMA,
    VERSION,
    AttributionForm,
    Beside,
    ChoiceForm,
    ChunkForm,
    RequestDetail,
    RequestSummary,
    Stamps,
    WaitForm,
)
from observability.timeline import RequestState, RequestTimeline


@dataclass(frozen=True, slots=True)
class Moment:
    """What a view needs to know besides the timeline.

    Attributes:
        now: monotonic seconds.
        wall_offset: Unix epoch seconds minus monotonic seconds.
        waiting_reason: what the head of the queue waits for.
        block_size: tokens per KV block, 0 if unknown.
    """

    now: float
    wall_offset: float
    waiting_reason: str = ""
    block_size: int = 0


def summary(timeline: RequestTimeline, moment: Moment) -> RequestSummary:
    """Return one line of the request table."""
    return RequestSummary(**_summary(timeline, moment))


def detail(timeline: RequestTimeline, moment: Moment) -> RequestDetail:
    """Return everything known of one request."""
    origin = timeline.arrival
    return RequestDetail(
        **_summary(timeline, moment),
        schema=DETAIL_SCHEMA,
        version=VERSION,
        message=timeline.message,
        ttft_engine_s=timeline.ttft_engine_s,
        tpot_s=timeline.tpot_s,
        stall_s=timeline.stall_s,
        first_queue_s=timeline.first_queue_s,
        num_computed_tokens=timeline.num_computed_tokens,
        num_recomputed_tokens=timeline.num_recomputed_tokens,
        prefix_why=timeline.prefix_why,
        stamps=Stamps(
            encoded_s=_after(origin, timeline.encoded),
            first_scheduled_s=_after(origin, timeline.first_scheduled),
            first_token_s=_after(origin, timeline.first_token),
            last_token_s=_after(origin, timeline.last_token),
            sent_first_s=_after(origin, timeline.sent_first),
            sent_last_s=_after(origin, timeline.sent_last),
            ended_s=_after(origin, timeline.ended),
        ),
        waits=[WaitForm(start_s=w.start - origin, end_s=w.end - origin, cause=w.cause) for w in timeline.waits],
        chunks=[
            ChunkForm(
                at_s=chunk.t - origin,
                step=chunk.step,
                index=chunk.index,
                start=chunk.start,
                num_tokens=chunk.num_tokens,
                num_recomputed=chunk.num_recomputed,
            )
            for chunk in timeline.chunks
        ],
        choices=[
            ChoiceForm(
                index=index,
                num_tokens=choice.num_tokens,
                first_token_s=_after(origin, choice.first_token),
                last_token_s=_after(origin, choice.last_token),
                stall_s=choice.stall_s if choice.num_gaps else None,
                finish_reason=choice.finish_reason,
            )
            for index, choice in sorted(timeline.choices.items())
        ],
        attribution=_attribution(timeline, moment.now),
        cache=explain(timeline.lookup, block_size=moment.block_size) if timeline.lookup is not None else None,
    )


def _summary(timeline: RequestTimeline, moment: Moment) -> dict[str, Any]:
    phase, since = _phase(timeline)
    return {
        "request_id": timeline.request_id,
        "trace_id": timeline.trace_id,
        "route": timeline.route,
        "model": timeline.model,
        "stream": timeline.stream,
        "state": timeline.outcome.value if timeline.outcome is not None else timeline.state.value,
        "phase": phase,
        "phase_s": 0.0 if phase == "ended" else max(0.0, moment.now - since),
        "waits_for": moment.waiting_reason if phase in ("queue", "preempted") else "",
        "finish_reason": timeline.finish_reason,
        "error_type": timeline.error_type,
        "arrival": timeline.arrival + moment.wall_offset,
        "age_s": moment.now - timeline.arrival,
        "num_prompt_tokens": timeline.num_prompt_tokens,
        "num_cached_tokens": timeline.num_cached_tokens,
        "num_output_tokens": timeline.num_output_tokens,
        "max_tokens": timeline.max_tokens,
        "num_preemptions": timeline.num_preemptions,
        "ttft_s": timeline.ttft_s,
        "e2e_s": timeline.e2e_s,
        "queue_s": timeline.queue_s,
        "prefill_s": timeline.prefill_s,
        "decode_s": timeline.decode_s,
        "mean_itl_s": timeline.mean_itl_s,
    }


def _phase(timeline: RequestTimeline) -> tuple[str, float]:
    """Return what a request does now, and since when."""
    if timeline.ended is not None:
        is_over = timeline.sent_last is not None or not timeline.is_sending
        return ("ended" if is_over else "send"), timeline.ended
    if timeline.waiting_since is not None:
        return ("preempted" if timeline.num_preemptions else "queue"), timeline.waiting_since
    if timeline.state is RequestState.RUNNING:
        first_token = timeline.first_token
        if first_token is not None:
            return "decode", first_token
        return "prefill", timeline.first_scheduled or timeline.arrival
    return ("tokenize", timeline.arrival) if timeline.encoded is None else ("queue", timeline.encoded)


def _attribution(timeline: RequestTimeline, now: float) -> AttributionForm:
    end = timeline.end_of_life
    return AttributionForm(
        wall_s=(end if end is not None else now) - timeline.arrival,
        is_complete=timeline.ended is not None and not timeline.is_sending,
        causes=attribution_of(timeline, now),
        beside=Beside(
            detokenize_s=timeline.detokenize_s,
            send_blocked_s=sum(blocked.end - blocked.start for blocked in timeline.blocked),
        ),
    )


def _after(origin: float, t: float | None) -> float | None:
    return None if t is None else t - origin
