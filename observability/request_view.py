"""A request's timeline as JSON, for `/telemetry/requests`."""

from observability.timeline import RequestTimeline

JsonObject = dict[str, object]


def summary(timeline: RequestTimeline, *, now: float, wall_offset: float) -> JsonObject:
    """Return one line of the request table. Durations in seconds; `arrival` in Unix epoch seconds."""
    return {
        "request_id": timeline.request_id,
        "trace_id": timeline.trace_id,
        "route": timeline.route,
        "model": timeline.model,
        "stream": timeline.stream,
        "state": timeline.outcome.value if timeline.outcome is not None else timeline.state.value,
        "finish_reason": timeline.finish_reason,
        "error_type": timeline.error_type,
        "arrival": timeline.arrival + wall_offset,
        "age_s": now - timeline.arrival,
        "num_prompt_tokens": timeline.num_prompt_tokens,
        "num_cached_tokens": timeline.num_cached_tokens,
        "num_output_tokens": timeline.num_output_tokens,
        "max_tokens": timeline.max_tokens,
        "num_preemptions": timeline.num_preemptions,
        "ttft_s": timeline.ttft_s,
        "e2e_s": timeline.e2e_s,
        "queue_s": timeline.queue_s,
        "mean_itl_s": timeline.mean_itl_s,
    }


def detail(timeline: RequestTimeline, *, now: float, wall_offset: float) -> JsonObject:
    """Return everything known of one request; stamps are seconds after arrival."""
    origin = timeline.arrival

    def after(t: float | None) -> float | None:
        return None if t is None else t - origin

    return {
        **summary(timeline, now=now, wall_offset=wall_offset),
        "message": timeline.message,
        "ttft_engine_s": timeline.ttft_engine_s,
        "tpot_s": timeline.tpot_s,
        "stall_s": timeline.stall_s,
        "first_queue_s": timeline.first_queue_s,
        "prefill_s": timeline.prefill_s,
        "decode_s": timeline.decode_s,
        "num_computed_tokens": timeline.num_computed_tokens,
        "num_recomputed_tokens": timeline.num_recomputed_tokens,
        "prefix_why": timeline.prefix_why,
        "stamps": {
            "first_scheduled_s": after(timeline.first_scheduled),
            "first_token_s": after(timeline.first_token),
            "last_token_s": after(timeline.last_token),
            "sent_first_s": after(timeline.sent_first),
            "sent_last_s": after(timeline.sent_last),
            "ended_s": after(timeline.ended),
        },
        "waits": [
            {"start_s": wait.start - origin, "end_s": wait.end - origin, "cause": wait.cause} for wait in timeline.waits
        ],
        "chunks": [
            {
                "at_s": chunk.t - origin,
                "step": chunk.step,
                "index": chunk.index,
                "start": chunk.start,
                "num_tokens": chunk.num_tokens,
                "num_recomputed": chunk.num_recomputed,
            }
            for chunk in timeline.chunks
        ],
        "choices": [
            {
                "index": index,
                "num_tokens": choice.num_tokens,
                "first_token_s": after(choice.first_token),
                "last_token_s": after(choice.last_token),
                "stall_s": choice.stall_s if choice.num_gaps else None,
                "finish_reason": choice.finish_reason,
            }
            for index, choice in sorted(timeline.choices.items())
        ],
    }
