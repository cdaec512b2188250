"""`timings` and `metrics` of an answer, read off the recorder's timeline of its first request; absent, never null.

A streamed answer without text hands over its first token with the chunk that would name the moment: its time to first
token is absent.
"""

from collections.abc import Mapping
from typing import Any

from service.generation import Usage


def timing_extras(timeline: Mapping[str, object] | None, usage: Usage) -> dict[str, Any]:
    """Return the two objects as members of a body or of the last chunk; {} when nothing is known."""
    if timeline is None:
        return {}
    prefill_s, decode_s = _seconds(timeline, "prefill_s"), _seconds(timeline, "decode_s")
    timings: dict[str, Any] = {
        "prompt_n": usage.prompt_tokens - usage.cached_tokens,
        "predicted_n": usage.completion_tokens,
        "cache_n": usage.cached_tokens,
    }
    if prefill_s is not None:
        timings["prompt_ms"] = _ms(prefill_s)
        if prefill_s > 0:
            timings["prompt_per_second"] = round((usage.prompt_tokens - usage.cached_tokens) / prefill_s, 2)
    if decode_s is not None:
        timings["predicted_ms"] = _ms(decode_s)
        if decode_s > 0 and usage.completion_tokens > 1:
            timings["predicted_per_second"] = round((usage.completion_tokens - 1) / decode_s, 2)
    metrics: dict[str, Any] = {}
    for name, source in (
        ("queue_time_ms", "queue_s"),
        ("time_to_first_token_ms", "ttft_s"),
        ("mean_itl_ms", "mean_itl_s"),
    ):
        seconds = _seconds(timeline, source)
        if seconds is not None and not (source == "ttft_s" and _is_unsent(timeline)):
            metrics[name] = _ms(seconds)
    if "predicted_per_second" in timings:
        metrics["tokens_per_second"] = timings["predicted_per_second"]
    return {"timings": timings, "metrics": metrics}


def _seconds(timeline: Mapping[str, object], name: str) -> float | None:
    value = timeline.get(name)
    return float(value) if isinstance(value, int | float) else None


def _is_unsent(timeline: Mapping[str, object]) -> bool:
    """Whether a stream's first token is still to be handed over."""
    stamps = timeline["stamps"]
    return timeline["stream"] is True and isinstance(stamps, Mapping) and stamps["sent_first_s"] is None


def _ms(seconds: float) -> float:
    return round(seconds * 1e3, 3)
