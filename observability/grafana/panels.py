"""The panels of the Grafana dashboard as data: what is asked, how it is drawn, and what to conclude from it.

`$instance` and `$__rate_interval` are filled in by Grafana. Every query sums over what it does not show, so that
several instances, or a label added later, never break a panel. `build.py` turns this into Grafana's JSON.
"""

import enum
from dataclasses import dataclass

INSTANCE = 'instance=~"$instance"'
RATE = "$__rate_interval"


class Draw(enum.Enum):
    """How a panel shows its series."""

    LINES = "lines"
    STACKED = "stacked"
    STAT = "stat"
    HEATMAP = "heatmap"


@dataclass(frozen=True)
class Query:
    """One PromQL expression; `legend` in Grafana's template form; `exemplars` asks for them too."""

    expr: str
    legend: str
    exemplars: bool = False


@dataclass(frozen=True)
class Panel:
    """One panel.

    Attributes:
        title, conclude: what it shows and the sentence that says what to conclude.
        unit: Grafana's unit id.
        thresholds: (value from which it applies, colour), ascending: colours of a stat, of which the first also holds
            below its value, and lines elsewhere.
        width: of 24 columns.
    """

    title: str
    conclude: str
    unit: str
    queries: tuple[Query, ...]
    draw: Draw = Draw.LINES
    thresholds: tuple[tuple[float, str], ...] = ()
    width: int = 8
    maximum: float | None = None


@dataclass(frozen=True)
class Row:
    """A titled row of panels."""

    title: str
    panels: tuple[Panel, ...]


def _rate(metric: str, by: str = "", labels: str = "") -> str:
    selector = ", ".join(part for part in (INSTANCE, labels) if part)
    grouping = f" by ({by})" if by else ""
    return f"sum{grouping} (rate(pellucid_{metric}{{{selector}}}[{RATE}]))"


def _gauge(metric: str, by: str = "", labels: str = "") -> str:
    selector = ", ".join(part for part in (INSTANCE, labels) if part)
    grouping = f" by ({by})" if by else ""
    return f"sum{grouping} (pellucid_{metric}{{{selector}}})"


def _quantiles(metric: str, labels: str = "") -> tuple[Query, ...]:
    buckets = _rate(f"{metric}_bucket", by="le", labels=labels)
    shares = ((0.5, "p50"), (0.95, "p95"), (0.99, "p99"))
    return tuple(Query(f"histogram_quantile({q}, {buckets})", name, exemplars=q == 0.99) for q, name in shares)


def _mean(metric: str, by: str = "") -> str:
    return f"{_rate(f'{metric}_sum', by)} / {_rate(f'{metric}_count', by)}"


def _recorded(name: str) -> str:
    return f"max by (instance) (instance:pellucid_{name}{{{INSTANCE}}})"


OVERVIEW = Row(
    "Overview",
    (
        Panel(
            "Up",
            "0 means that the engine process does not answer: look at the engine's log and its restarts.",
            "none",
            (Query(f"min (pellucid_engine_up{{{INSTANCE}}})", "engine"),),
            Draw.STAT,
            ((0, "red"), (1, "green")),
            4,
        ),
        Panel(
            "Requests per second",
            "What clients ask for, refused ones included; compare with finished requests under HTTP.",
            "reqps",
            (Query(_rate("requests_received_total"), "received"),),
            Draw.STAT,
            width=4,
        ),
        Panel(
            "Generated tokens per second",
            "The work that users see. Flat at a high queue is capacity; falling at a high queue is a fault.",
            "short",
            (Query(_rate("generated_tokens_total"), "tokens/s"),),
            Draw.STAT,
            width=4,
        ),
        Panel(
            "First tokens slower than 1 s",
            "Share over the last hour against the objective of 1 %; over 14.4 % pages at once.",
            "percentunit",
            (Query(_recorded("ttft_slow:ratio_rate1h"), "{{instance}}"),),
            Draw.STAT,
            ((0, "green"), (0.01, "orange"), (0.144, "red")),
            4,
        ),
        Panel(
            "Requests failed by us",
            "Share over the last hour against the objective of 0.5 %; polite refusals are not in it.",
            "percentunit",
            (Query(_recorded("errors:ratio_rate1h"), "{{instance}}"),),
            Draw.STAT,
            ((0, "green"), (0.005, "orange"), (0.072, "red")),
            4,
        ),
        Panel(
            "Time without a named cause",
            "Above 1 % the attribution of latency is not to be trusted.",
            "percentunit",
            (Query(_recorded("unattributed:ratio_rate5m"), "{{instance}}"),),
            Draw.STAT,
            ((0, "green"), (0.01, "red")),
            4,
        ),
        Panel(
            "Tokens per second",
            "Prompt tokens taken from the cache cost nothing; recomputed ones are paid twice.",
            "short",
            (
                Query(_rate("generated_tokens_total"), "generated"),
                Query(_rate("prompt_tokens_total", by="source"), "prompt, {{source}}"),
            ),
            width=12,
        ),
        Panel(
            "Requests in the engine",
            "Waiting without running, or both without tokens, is a stall; waiting alone is load. "
            "The reason is what the head of the queue waits for.",
            "short",
            (
                Query(_gauge("requests_running"), "running"),
                Query(_gauge("requests_waiting", by="reason"), "waiting: {{reason}}"),
            ),
            Draw.STACKED,
            width=12,
        ),
    ),
)

LATENCY = Row(
    "Latency",
    (
        Panel(
            "Time to first token",
            "What a user waits for before anything happens, queueing included. A dot opens that request's trace.",
            "s",
            _quantiles("time_to_first_token_seconds"),
            thresholds=((1.0, "red"),),
        ),
        Panel(
            "Inter-token latency",
            "A p99 far above p50 means that decodes are held up by others' prefills: lower the token budget.",
            "s",
            _quantiles("inter_token_latency_seconds"),
        ),
        Panel(
            "Request duration",
            "Arrival to last byte. Depends on answer length: compare like with like.",
            "s",
            _quantiles("request_duration_seconds"),
        ),
        Panel(
            "Where the time to first token goes",
            "Mean queueing against mean prefill: queueing calls for capacity, prefill for shorter or cached prompts.",
            "s",
            (
                Query(_mean("request_queue_seconds"), "queue"),
                Query(_mean("request_prefill_seconds"), "prefill"),
            ),
            Draw.STACKED,
        ),
        Panel(
            "Time to first token, all of it",
            "Two bands are two kinds of request (cached and not, short and long prompt): percentiles hide them.",
            "s",
            (Query(_rate("time_to_first_token_seconds_bucket", by="le"), "{{le}}", exemplars=True),),
            Draw.HEATMAP,
        ),
        Panel(
            "Time per output token",
            "One number for streaming speed of a finished answer; at 0.1 s people read along.",
            "s",
            _quantiles("time_per_output_token_seconds"),
            thresholds=((0.1, "orange"),),
        ),
    ),
)

SCHEDULER = Row(
    "Scheduler",
    (
        Panel(
            "Engine time by stage",
            "Shares of the engine's wall time. Little execute beside the other stages: the host is the limit.",
            "percentunit",
            (
                Query(
                    f"{_rate('engine_stage_seconds_total', by='stage')} / ignoring (stage) group_left "
                    f"{_rate('engine_stage_seconds_total')}",
                    "{{stage}}",
                ),
            ),
            Draw.STACKED,
            maximum=1.0,
        ),
        Panel(
            "Step duration",
            "Mixed steps lengthen every running decode by the prefill in them; that is interference.",
            "s",
            (Query(_mean("step_duration_seconds", by="kind"), "mean, {{kind}}"),),
        ),
        Panel(
            "Steps per second",
            "Many steps without tokens is a scheduler that spins.",
            "short",
            (
                Query(_rate("engine_steps_total"), "steps"),
                Query(_recorded("tokens:rate1m"), "tokens"),
            ),
        ),
        Panel(
            "Tokens per step",
            "Prefill near the token budget and decode near the batch: the machine is full. Both low at a queue: not.",
            "short",
            (Query(_mean("step_tokens", by="phase"), "{{phase}}"),),
        ),
        Panel(
            "Decode batch size",
            "Tokens for each read of the weights: the larger, the cheaper a token.",
            "short",
            _quantiles("decode_batch_size"),
        ),
        Panel(
            "Preemptions and recomputed tokens",
            "Above zero for long: the pool is too small for the sequences let in at once.",
            "short",
            (
                Query(_rate("preemptions_total"), "preemptions/s"),
                Query(_rate("recomputed_tokens_total"), "recomputed tokens/s"),
            ),
        ),
        Panel(
            "Age of the oldest waiting request",
            "A queue that moves keeps this short at any length; over 30 s it raises an alert.",
            "s",
            (Query(f"max (pellucid_oldest_waiting_seconds{{{INSTANCE}}})", "oldest"),),
            thresholds=((30.0, "red"),),
        ),
        Panel(
            "Heartbeat and restarts",
            "An age that climbs past some seconds is a hung step; each restart failed what was in flight.",
            "s",
            (
                Query(f"max (pellucid_engine_heartbeat_age_seconds{{{INSTANCE}}})", "heartbeat age"),
                Query(f"sum (increase(pellucid_engine_restarts_total{{{INSTANCE}}}[{RATE}]))", "restarts"),
                Query(f"sum (increase(pellucid_engine_stalls_total{{{INSTANCE}}}[{RATE}]))", "stalls seen"),
            ),
        ),
    ),
)

KV_CACHE = Row(
    "KV cache",
    (
        Panel(
            "Blocks by state",
            "A pool full of cached blocks is healthy: they are free on demand. Only referenced ones are taken.",
            "short",
            (Query(_gauge("kv_blocks", by="state"), "{{state}}"),),
            Draw.STACKED,
        ),
        Panel(
            "Pool referenced",
            "Near 1 with preemptions is pressure; near 1 without is a pool well used.",
            "percentunit",
            (Query(f"max (pellucid_kv_usage_ratio{{{INSTANCE}}})", "referenced / all"),),
            maximum=1.0,
        ),
        Panel(
            "Evictions per second",
            "Cached prefixes dropped for room. Rising together with misses by `evicted`: a larger pool would pay.",
            "short",
            (Query(_rate("kv_evictions_total"), "evictions"),),
        ),
        Panel(
            "Slots allocated and not written",
            "Waste in the last block of each sequence; large against the pool: the block size is too big.",
            "short",
            (Query(_gauge("kv_tail_waste_tokens"), "tokens"),),
        ),
    ),
)

PREFIX_CACHE = Row(
    "Prefix cache",
    (
        Panel(
            "Hit ratio",
            "Share of prompt tokens that needed no computing. Chats and shared system prompts should be high.",
            "percentunit",
            (Query(_recorded("prefix_hit:ratio_rate5m"), "{{instance}}"),),
            maximum=1.0,
        ),
        Panel(
            "Why not more was reused",
            "`cold`: never seen. `diverged`: prompts differ early, put what varies last. `evicted`: pool too small. "
            "`salt`: separated on purpose.",
            "short",
            (Query(_rate("prefix_miss_total", by="why"), "{{why}}"),),
            Draw.STACKED,
        ),
        Panel(
            "Prompt tokens looked up and found",
            "The two lines' gap is what prefill has to compute.",
            "short",
            (
                Query(_rate("prefix_cache_queries_tokens_total"), "looked up"),
                Query(_rate("prefix_cache_hit_tokens_total"), "found"),
            ),
        ),
    ),
)

SPECULATION = Row(
    "Speculation",
    (
        Panel(
            "Proposed and accepted tokens",
            "Both at zero: speculation is off. Accepted close to proposed: longer drafts would pay.",
            "short",
            (
                Query(_rate("speculative_proposed_tokens_total"), "proposed"),
                Query(_rate("speculative_accepted_tokens_total"), "accepted"),
            ),
            width=12,
        ),
        Panel(
            "Acceptance ratio",
            "Below about a half, drafts cost more than they save.",
            "percentunit",
            (
                Query(
                    f"{_rate('speculative_accepted_tokens_total')} / {_rate('speculative_proposed_tokens_total')}",
                    "accepted / proposed",
                ),
            ),
            width=12,
            maximum=1.0,
        ),
    ),
)

HTTP = Row(
    "HTTP",
    (
        Panel(
            "Responses by status",
            "429 is the queue refusing politely; 503 the engine down or draining; 500 a fault of ours.",
            "reqps",
            (Query(_rate("http_requests_total", by="status"), "{{status}}"),),
            Draw.STACKED,
        ),
        Panel(
            "Requests by end",
            "`abort` is a client that left; many of them mean that answers come too late.",
            "reqps",
            (
                Query(_rate("requests_total", by="finish_reason"), "{{finish_reason}}"),
                Query(_rate("requests_rejected_total", by="error_type"), "refused: {{error_type}}"),
            ),
            Draw.STACKED,
        ),
        Panel(
            "Duration by route, p99",
            "Routes other than the generating ones should stay in milliseconds at any load.",
            "s",
            (
                Query(
                    f"histogram_quantile(0.99, {_rate('http_request_duration_seconds_bucket', by='le, route')})",
                    "{{route}}",
                ),
            ),
        ),
        Panel(
            "Time spent waiting for slow readers",
            "Seconds each second in which an answer was ready and its client did not take it.",
            "short",
            (Query(_rate("send_blocked_seconds_total"), "blocked"),),
        ),
        Panel(
            "Instruments' own losses",
            "`ring` overwrites by design; `stream` and spans are losses.",
            "short",
            (
                Query(_rate("events_dropped_total", by="where"), "events: {{where}}"),
                Query(_rate("spans_dropped_total", by="reason"), "spans: {{reason}}"),
            ),
        ),
    ),
)

HOST = Row(
    "Host",
    (
        Panel(
            "Processor time of the service",
            "Cores used by the service process; near 1 it is the bottleneck, whatever the engine does.",
            "short",
            (Query(f"sum by (instance) (rate(process_cpu_seconds_total{{{INSTANCE}}}[{RATE}]))", "{{instance}}"),),
        ),
        Panel(
            "Memory of the service",
            "Bounded rings fill and then it is flat; a line that keeps rising is a leak.",
            "bytes",
            (Query(f"sum by (instance) (process_resident_memory_bytes{{{INSTANCE}}})", "{{instance}}"),),
        ),
        Panel(
            "Open files",
            "One each connection; close to the limit, new clients are refused by the system.",
            "short",
            (
                Query(f"sum by (instance) (process_open_fds{{{INSTANCE}}})", "{{instance}}"),
                Query(f"max by (instance) (process_max_fds{{{INSTANCE}}})", "limit, {{instance}}"),
            ),
        ),
    ),
)

ROWS = (OVERVIEW, LATENCY, SCHEDULER, KV_CACHE, PREFIX_CACHE, SPECULATION, HTTP, HOST)
