"""The form of `GET /stats`, and its JSON Schema. A change of meaning or a removal raises VERSION."""

from collections.abc import Sequence
from typing import Any

import msgspec

from observability.sketch import Sketch
from observability.window import Second

SCHEMA = "pellucid-stats"
VERSION = 1


class EngineStats(msgspec.Struct, frozen=True, kw_only=True):
    """What runs. `state` is `loading`, `ready` or `down`; sizes are 0 until the engine has started."""

    state: str
    model: str
    executor: str
    block_size: int
    num_blocks: int
    max_num_seqs: int
    max_num_batched_tokens: int
    max_model_len: int
    prefix_cache: bool
    restarts: int
    heartbeat_age_s: float | None


class CounterStats(msgspec.Struct, frozen=True, kw_only=True):
    """Since the service started; received = finished + aborted + failed + rejected + gauges.in_flight."""

    requests_received: int
    requests_finished: int
    requests_aborted: int
    requests_failed: int
    requests_rejected: int
    prompt_tokens_computed: int
    prompt_tokens_cached: int
    prompt_tokens_recomputed: int
    generated_tokens: int
    recomputed_tokens: int
    prefix_queries_tokens: int
    prefix_hit_tokens: int
    preemptions: int
    kv_evictions: int
    engine_steps: int
    events: int
    events_dropped: int


class KvStats(msgspec.Struct, frozen=True, kw_only=True):
    """Blocks by state; free + referenced + cached = total. `usage_ratio` = referenced / total."""

    total: int
    free: int
    referenced: int
    cached: int
    usage_ratio: float
    tail_waste_tokens: int


class GaugeStats(msgspec.Struct, frozen=True, kw_only=True):
    """Now. `blocked_on` says what the head of the queue waits for, "" when nothing waits."""

    in_flight: int
    running: int
    waiting: int
    blocked_on: str
    oldest_waiting_s: float
    kv: KvStats


class Percentiles(msgspec.Struct, frozen=True, kw_only=True):
    """Over `n` samples in the window; null where n is too small for that percentile (1, 10, 100)."""

    n: int
    p50_s: float | None
    p90_s: float | None
    p99_s: float | None


class WindowStats(msgspec.Struct, frozen=True, kw_only=True):
    """Over the last `seconds` complete seconds; ratios and means are null where their divisor is 0.

    Attributes:
        seconds: complete seconds looked at; fewer than asked for just after the start.
        prefill_tokens_per_s: prompt tokens computed, recomputed ones included.
        decode_tokens_per_s: tokens generated.
        decode_batch_mean: sequences per step that decoded any (decode tokens per weight read).
        busy_ratio: share of the wall time spent in steps; the `..._s` stages split it.
    """

    seconds: int
    prefill_tokens_per_s: float
    decode_tokens_per_s: float
    steps_per_s: float
    requests_per_s: float
    preemptions: int
    kv_evictions: int
    recomputed_tokens: int
    prefix_hit_ratio: float | None
    decode_batch_mean: float | None
    prefill_tokens_per_step: float | None
    decode_tokens_per_step: float | None
    busy_ratio: float
    schedule_s: float
    execute_s: float
    sample_s: float
    update_s: float
    ttft: Percentiles
    itl: Percentiles


class History(msgspec.Struct, frozen=True, kw_only=True):
    """One entry per complete second, oldest first, in columns of equal length.

    Attributes:
        t: Unix epoch seconds at the second's start.
        ttft_p50_ms, ...: over a sliding window that ends there, 60 s for TTFT and 10 s for ITL; null where n is too
            small.
        batch_prefill, batch_decode: mean tokens per step; null in seconds without a step.
        blocked_on: what the head of the queue waited for, "" when nothing waited.
        busy_s: wall time of the steps that ended in the second, split by stage in the columns after it.
        prefix_queries, prefix_hits: prompt tokens looked up in the prefix cache, and those of them found.
    """

    t: list[int]
    prefill_tokens: list[int]
    generated_tokens: list[int]
    steps: list[int]
    batch_prefill: list[float | None]
    batch_decode: list[float | None]
    running: list[int]
    waiting: list[int]
    kv_free: list[int]
    kv_referenced: list[int]
    kv_cached: list[int]
    blocked_on: list[str]
    busy_s: list[float]
    schedule_s: list[float]
    execute_s: list[float]
    sample_s: list[float]
    update_s: list[float]
    preemptions: list[int]
    kv_evictions: list[int]
    recomputed_tokens: list[int]
    prefix_queries: list[int]
    prefix_hits: list[int]
    requests_received: list[int]
    requests_ended: list[int]
    ttft_p50_ms: list[float | None]
    ttft_p90_ms: list[float | None]
    ttft_p99_ms: list[float | None]
    itl_p50_ms: list[float | None]
    itl_p99_ms: list[float | None]


class RingStats(msgspec.Struct, frozen=True, kw_only=True):
    size: int
    capacity: int
    overwritten: int


class Rings(msgspec.Struct, frozen=True, kw_only=True):
    """The bounded memories; the newest entries stay."""

    events: RingStats
    steps: RingStats
    requests: RingStats


class TracingStats(msgspec.Struct, frozen=True, kw_only=True):
    """Spans since the start, whether they go to a collector, and what was lost on the way, by reason."""

    spans: int = 0
    exporting: bool = False
    spans_exported: int = 0
    spans_dropped: dict[str, int] = {}
    traces: RingStats = RingStats(size=0, capacity=0, overwritten=0)


class ServiceStats(msgspec.Struct, frozen=True, kw_only=True):
    """The HTTP side: whether a request would be taken now, and the choices it has room for."""

    ready: bool
    engine_state: str
    choices_admitted: int
    choices_capacity: int


class Stats(msgspec.Struct, frozen=True, kw_only=True):
    """The body of `GET /stats`. `t` is Unix epoch seconds; `recent` is a short window for "now" numbers.

    `service` is added by the service; the recorder alone doesn't know of it.
    """

    schema: str
    version: int
    t: float
    uptime_s: float
    engine: EngineStats
    counters: CounterStats
    gauges: GaugeStats
    recent: WindowStats
    window: WindowStats
    history: History
    rings: Rings
    tracing: TracingStats
    service: ServiceStats | msgspec.UnsetType = msgspec.UNSET


def stats_schema() -> dict[str, Any]:
    """Return the JSON Schema of `GET /stats`."""
    return msgspec.json.schema(Stats)


def window_stats(seconds: Sequence[Second]) -> WindowStats:
    """Sum up complete seconds."""
    span = len(seconds)

    def total(name: str) -> int:
        return sum(getattr(second, name) for second in seconds)

    def rate(amount: float) -> float:
        return amount / span if span else 0.0

    steps = total("steps")
    return WindowStats(
        seconds=span,
        prefill_tokens_per_s=rate(total("prefill_tokens")),
        decode_tokens_per_s=rate(total("generated_tokens")),
        steps_per_s=rate(steps),
        requests_per_s=rate(total("requests_ended")),
        preemptions=total("preemptions"),
        kv_evictions=total("evictions"),
        recomputed_tokens=total("recomputed_tokens"),
        prefix_hit_ratio=_ratio(total("prefix_hits"), total("prefix_queries")),
        decode_batch_mean=_ratio(total("decode_seqs"), total("decode_steps")),
        prefill_tokens_per_step=_ratio(total("prefill_tokens"), steps),
        decode_tokens_per_step=_ratio(total("decode_tokens"), steps),
        busy_ratio=min(1.0, rate(sum(second.busy_s for second in seconds))),
        schedule_s=sum(second.schedule_s for second in seconds),
        execute_s=sum(second.execute_s for second in seconds),
        sample_s=sum(second.sample_s for second in seconds),
        update_s=sum(second.update_s for second in seconds),
        ttft=_percentiles(Sketch.merged(second.ttft for second in seconds)),
        itl=_percentiles(Sketch.merged(second.itl for second in seconds)),
    )


def _percentiles(sketch: Sketch) -> Percentiles:
    return Percentiles(
        n=sketch.n, p50_s=sketch.percentile(50), p90_s=sketch.percentile(90), p99_s=sketch.percentile(99)
    )


def _ratio(part: float, whole: float) -> float | None:
    return part / whole if whole else None
