"""Puts the current state of the books into the form of `GET /stats`, and into the gauges."""

from observability.engine_book import EngineBook
from observability.label_sets import BLOCK_STATES, WAIT_REASONS
from observability.metrics import Metrics
from observability.requests import RequestBook
from observability.stats import CounterStats, EngineStats, GaugeStats, KvStats


def refresh_gauges(metrics: Metrics, requests: RequestBook, engine: EngineBook, now: float) -> None:
    """Set every gauge to what is true now."""
    metrics.requests_running.at().set(requests.num_running)
    waiting = dict.fromkeys(WAIT_REASONS, 0)
    if requests.num_waiting:
        waiting[engine.waiting_reason(requests.num_waiting)] = requests.num_waiting
    waiting["next_step"] += requests.num_in_inbox
    for reason, number in waiting.items():
        metrics.requests_waiting.at(reason).set(number)
    metrics.oldest_waiting.at().set(requests.oldest_waiting_s(now))
    pool = engine.pool
    for state, count in zip(BLOCK_STATES, (pool.free, pool.referenced, pool.cached), strict=True):
        metrics.kv_blocks.at(state).set(count)
    metrics.kv_usage.at().set(pool.usage_ratio)
    metrics.kv_tail_waste.at().set(engine.tail_waste_tokens)
    if not requests.num_in_flight:
        engine.idle_until(now)
    metrics.engine_up.at().set(engine.state == "ready")
    metrics.heartbeat_age.at().set(engine.heartbeat_age_s(now) or 0.0)


def engine_stats(engine: EngineBook, metrics: Metrics, now: float) -> EngineStats:
    started = engine.started
    return EngineStats(
        state=engine.state,
        model=started.model if started else "",
        executor=started.executor if started else "",
        block_size=started.block_size if started else 0,
        num_blocks=started.num_blocks if started else 0,
        max_num_seqs=started.max_num_seqs if started else 0,
        max_num_batched_tokens=started.max_num_batched_tokens if started else 0,
        max_model_len=started.max_model_len if started else 0,
        prefix_cache=started.prefix_cache if started else False,
        restarts=int(metrics.engine_restarts.total()),
        heartbeat_age_s=engine.heartbeat_age_s(now),
    )


def counter_stats(metrics: Metrics, num_events: int) -> CounterStats:
    return CounterStats(
        requests_received=int(metrics.requests_received.total()),
        requests_finished=int(metrics.requests.at("stop").value + metrics.requests.at("length").value),
        requests_aborted=int(metrics.requests.at("abort").value),
        requests_failed=int(metrics.requests.at("error").value),
        requests_rejected=int(metrics.requests_rejected.total()),
        prompt_tokens_computed=int(metrics.prompt_tokens.at("computed").value),
        prompt_tokens_cached=int(metrics.prompt_tokens.at("cached").value),
        prompt_tokens_recomputed=int(metrics.prompt_tokens.at("recomputed").value),
        generated_tokens=int(metrics.generated_tokens.total()),
        recomputed_tokens=int(metrics.recomputed_tokens.total()),
        prefix_queries_tokens=int(metrics.prefix_queries.total()),
        prefix_hit_tokens=int(metrics.prefix_hits.total()),
        preemptions=int(metrics.preemptions.total()),
        kv_evictions=int(metrics.kv_evictions.total()),
        engine_steps=int(metrics.steps.total()),
        events=num_events,
        events_dropped=int(metrics.events_dropped.at("stream").value),
    )


def gauge_stats(requests: RequestBook, engine: EngineBook, now: float) -> GaugeStats:
    pool = engine.pool
    return GaugeStats(
        in_flight=requests.num_in_flight,
        running=requests.num_running,
        waiting=requests.num_waiting + requests.num_in_inbox,
        blocked_on=engine.waiting_reason(requests.num_waiting + requests.num_in_inbox),
        oldest_waiting_s=requests.oldest_waiting_s(now),
        kv=KvStats(
            total=pool.total,
            free=pool.free,
            referenced=pool.referenced,
            cached=pool.cached,
            usage_ratio=pool.usage_ratio,
            tail_waste_tokens=engine.tail_waste_tokens,
        ),
    )
