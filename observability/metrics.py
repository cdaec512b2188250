"""Every metric of the project: names, help, labels and bucket bounds, declared in one object."""

import platform
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache, partial
from typing import cast

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.exposition import choose_encoder
from prometheus_client.openmetrics.exposition import ALLOWUTF8
from prometheus_client.registry import Collector

from observability.exposition import CollectorPage, Encode, Exposition
from observability.instruments import Counter, Gauge, Histogram, Info, Label
from observability.label_sets import (
    BLOCK_STATES,
    CAUSES,
    ERROR_TYPES,
    FINISH_REASONS,
    METHODS,
    MISS_REASONS,
    PROMPT_SOURCES,
    SPAN_DROPS,
    STAGES,
    STATUSES,
    STEP_KINDS,
    WAIT_REASONS,
)

# The bounds of the OpenTelemetry GenAI conventions for the server metrics of the same meaning.
TTFT_BOUNDS = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)
TPOT_BOUNDS = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5)
DURATION_BOUNDS = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)
# Ours: a token gap is shorter than the GenAI bounds resolve on small models, and a stall is longer than a token.
ITL_BOUNDS = (
    *(0.0005, 0.001, 0.0025, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.025, 0.03, 0.04, 0.05),
    *(0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0, 2.5, 10.0),
)
PHASE_BOUNDS = (0.0001, 0.0005, *TTFT_BOUNDS, 30.0, 60.0)
STEP_BOUNDS = (*(0.0005 * 2**i for i in range(15)),)
TOKEN_BOUNDS = (*(float(2**i) for i in range(15)),)
BATCH_BOUNDS = (*(float(2**i) for i in range(11)),)
HTTP_BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)

OPENMETRICS = "application/openmetrics-text"


class Metrics:
    """The declarations, the registry that owns them, and their exposition.

    Args:
        version: of the project, for `build_info`.
        routes: the route templates of the service; any other route is counted as `unmatched`.

    Attributes:
        num_renders: expositions so far.
    """

    def __init__(self, *, version: str = "0.1.0", routes: Iterable[str] = ()) -> None:
        other_error = Label("error_type", ERROR_TYPES, other="other")
        route = Label("route", tuple(routes), other="unmatched")

        # requests
        self.requests_received = Counter(
            "requests_received_total",
            "Requests taken note of; equals ended + rejected + in flight at any moment.",
        )
        self.requests = Counter(
            "requests_total",
            "Requests that ended after the engine or the service accepted them, when they ended.",
            Label("finish_reason", FINISH_REASONS),
        )
        self.requests_rejected = Counter(
            "requests_rejected_total", "Requests refused, by the type string of the JSON error body.", other_error
        )
        self.requests_running = Gauge("requests_running", "Requests that hold KV blocks.")
        self.requests_waiting = Gauge(
            "requests_waiting",
            "Requests that wait for admission or to be resumed, by what the head of the queue waits for.",
            Label("reason", WAIT_REASONS, other="next_step"),
        )
        self.oldest_waiting = Gauge(
            "oldest_waiting_seconds", "How long the request that waits longest has waited, 0 when none does."
        )

        # tokens, counted in the step that computed or sampled them
        self.prompt_tokens = Counter(
            "prompt_tokens_total",
            "Prompt tokens by where their KV came from; recomputed ones were lost to a preemption before.",
            Label("source", PROMPT_SOURCES),
        )
        self.generated_tokens = Counter(
            "generated_tokens_total", "Tokens sampled, in the step that sampled them (rates are true during requests)."
        )
        self.prefix_queries = Counter(
            "prefix_cache_queries_tokens_total", "Prompt tokens looked up in the prefix cache, once per admission."
        )
        self.prefix_hits = Counter(
            "prefix_cache_hit_tokens_total", "Prompt tokens found in the prefix cache, once per admission."
        )
        self.prefix_misses = Counter(
            "prefix_miss_total",
            "Admissions that could not reuse the whole prompt, by the first cause.",
            Label("why", MISS_REASONS),
        )

        self.request_prompt_tokens = Histogram(
            "request_prompt_tokens", "Prompt length of every request that ended.", bounds=TOKEN_BOUNDS
        )
        self.request_output_tokens = Histogram(
            "request_output_tokens", "Tokens sampled for every request that ended, all choices.", bounds=TOKEN_BOUNDS
        )

        # latency
        self.ttft = Histogram(
            "time_to_first_token_seconds",
            "Arrival to the first token handed to the transport, queueing included; one observation for each request "
            "that produced a token (engine-side stamp where the answer isn't streamed).",
            exemplars=True,
            bounds=TTFT_BOUNDS,
        )
        self.itl = Histogram(
            "inter_token_latency_seconds",
            "Gap between consecutive tokens of one choice.",
            exemplars=True,
            bounds=ITL_BOUNDS,
        )
        self.tpot = Histogram(
            "time_per_output_token_seconds",
            "(E2E - TTFT) / (n - 1) of finished requests; no observation for n < 2.",
            exemplars=True,
            bounds=TPOT_BOUNDS,
        )
        self.duration = Histogram(
            "request_duration_seconds",
            "Arrival to the last byte handed to the transport, of every request that ended.",
            exemplars=True,
            bounds=DURATION_BOUNDS,
        )
        self.queue = Histogram(
            "request_queue_seconds",
            "All waiting of one request, waiting again after preemption included.",
            exemplars=True,
            bounds=PHASE_BOUNDS,
        )
        self.first_queue = Histogram(
            "request_first_queue_seconds",
            "Queued to first scheduled, of every request that ended.",
            exemplars=True,
            bounds=PHASE_BOUNDS,
        )
        self.prefill = Histogram(
            "request_prefill_seconds",
            "First scheduled to first token (engine side).",
            exemplars=True,
            bounds=PHASE_BOUNDS,
        )
        self.decode = Histogram(
            "request_decode_seconds", "First token to last token (engine side).", exemplars=True, bounds=PHASE_BOUNDS
        )

        self.unattributed = Histogram(
            "unattributed_seconds",
            "Part of a request's duration that no cause accounts for; one observation per duration.",
            exemplars=True,
            bounds=PHASE_BOUNDS,
        )
        self.attributed = Counter(
            "request_attributed_seconds_total",
            "Durations of the requests that ended, split into exclusive causes; the causes sum to the durations.",
            Label("cause", CAUSES),
        )

        # steps
        self.step_duration = Histogram(
            "step_duration_seconds",
            "Wall time of one engine step.",
            Label("kind", STEP_KINDS),
            bounds=STEP_BOUNDS,
        )
        self.step_tokens = Histogram(
            "step_tokens",
            "Tokens of one phase in one step that had any.",
            Label("phase", ("prefill", "decode")),
            bounds=TOKEN_BOUNDS,
        )
        self.decode_batch = Histogram(
            "decode_batch_size", "Sequences that decoded in one step that had any.", bounds=BATCH_BOUNDS
        )
        self.steps = Counter("engine_steps_total", "Engine steps, empty ones included.")
        self.stage_seconds = Counter(
            "engine_stage_seconds_total",
            "Wall time of the engine loop by stage: the stages of its steps, what else the steps took (`other`), "
            "`messages` to and from the service between steps, and `idle` with nothing to do.",
            Label("stage", STAGES),
        )

        # KV
        self.kv_blocks = Gauge(
            "kv_blocks", "KV blocks by state; the three sum to the pool.", Label("state", BLOCK_STATES)
        )
        self.kv_usage = Gauge("kv_usage_ratio", "Referenced blocks / all blocks; cached ones count as free.")
        self.kv_evictions = Counter("kv_evictions_total", "Cached blocks dropped from the prefix cache.")
        self.preemptions = Counter("preemptions_total", "Times a running sequence gave its blocks back to wait again.")
        self.recomputed_tokens = Counter(
            "recomputed_tokens_total", "Tokens computed a second time because of a preemption: wasted work."
        )
        self.kv_tail_waste = Gauge("kv_tail_waste_tokens", "Slots allocated to running sequences and not written.")

        # speculative decoding
        self.speculative_proposed = Counter(
            "speculative_proposed_tokens_total", "Tokens proposed by a draft; 0 while nothing drafts."
        )
        self.speculative_accepted = Counter(
            "speculative_accepted_tokens_total", "Proposed tokens that the model accepted."
        )

        # HTTP
        self.http_requests = Counter(
            "http_requests_total",
            "HTTP responses by route template, method and status.",
            route,
            Label("method", METHODS, other="OTHER"),
            Label("status", STATUSES, other="other"),
        )
        self.http_duration = Histogram(
            "http_request_duration_seconds",
            "Request received to last byte handed to the transport.",
            route,
            bounds=HTTP_BOUNDS,
        )

        self.send_blocked = Counter(
            "send_blocked_seconds_total",
            "Time that answers were held up by readers slower than they are written (writes of a millisecond or more).",
        )

        # engine process
        self.engine_up = Gauge("engine_up", "1 while the engine process answers and can step.")
        self.engine_restarts = Counter("engine_restarts_total", "Times the engine came up again after its first start.")
        self.heartbeat_age = Gauge("engine_heartbeat_age_seconds", "Time since the engine was last heard from.")
        self.stalls = Counter(
            "engine_stalls_total", "Times the watchdog saw steps that schedule nothing while some wait."
        )
        self.events_dropped = Counter(
            "events_dropped_total",
            "Events lost: `stream` never reached the recorder (a fault); `ring` were overwritten by newer ones.",
            Label("where", ("stream", "ring")),
        )
        self.spans_dropped = Counter(
            "spans_dropped_total",
            "Spans lost on the way to a collector (its queue was full, it refused them, the server stopped first), or "
            "beyond what the memory keeps of one trace.",
            Label("reason", SPAN_DROPS),
        )
        self.build_info = Info("build_info", "Version of the project and of Python.", "version", "python")
        self.build_info.set(version=version, python=platform.python_version())
        self.model_info = Info("model_info", "The model that is loaded and what runs it.", "model", "executor")
        self.cache_info = Info(
            "kv_cache_info", "The pool of KV blocks as configured.", "block_size", "num_blocks", "prefix_cache"
        )

        self._with_exemplars = [
            each for each in self.instruments() if isinstance(each, Histogram) and each.has_exemplars
        ]
        self.num_renders = 0
        self._refreshers: list[Callable[[], None]] = []
        self._others = CollectorRegistry()
        self._process = ProcessCollector(registry=None)
        self._expositions: dict[str, tuple[Exposition, CollectorPage]] = {}

    def instruments(self) -> Iterator[Counter | Gauge | Histogram | Info]:
        """Iterate over every declaration, in the order above."""
        for value in vars(self).values():
            if isinstance(value, Counter | Gauge | Histogram | Info):
                yield value

    def also_expose(self, collector: Collector) -> None:
        """Append another collector's families to each exposition."""
        self._others.register(collector)

    def before_render(self, refresh: Callable[[], None]) -> None:
        """Have `refresh` bring gauges up to date before each exposition."""
        self._refreshers.append(refresh)

    def forget_exemplars(self, is_known: Callable[[str], bool]) -> None:
        """Drop the exemplars whose trace id isn't known any more: they would lead nowhere."""
        for instrument in self._with_exemplars:
            for series in instrument.all_series():
                series.forget_exemplars(is_known)

    def render(self, accept: str = "") -> tuple[bytes, str]:
        """Return (body, content type) of the exposition that an Accept header asks for.

        OpenMetrics, with exemplars, where it is accepted; else the Prometheus text format.
        """
        for refresh in self._refreshers:
            refresh()
        self.num_renders += 1
        encode, content_type = _negotiated(accept)
        # Whatever the scraper can't read in names is to be escaped, says the header, and ours have nothing of the kind.
        # The library would take the colon of `vllm:` for it, which is only wrong in labels.
        is_openmetrics = content_type.startswith(OPENMETRICS)
        if is_openmetrics:
            encode = partial(encode, escaping=ALLOWUTF8)
        # The version of OpenMetrics is the scraper's to choose, so it must not decide how many of these are kept; it
        # only changes how native histograms are written, and there are none.
        kept = OPENMETRICS if is_openmetrics else content_type
        if kept not in self._expositions:
            ours = Exposition(self.instruments(), cast(Encode, encode), shows_exemplars=is_openmetrics)
            self._expositions[kept] = ours, CollectorPage(self._process, cast(Encode, encode))
        exposition, process = self._expositions[kept]
        return exposition.body() + process.body() + encode(self._others), content_type

    def rejected(self, error_type: str) -> None:
        """Count a request that was refused before the recorder was told of it."""
        self.requests_received.at().inc()
        self.requests_rejected.at(error_type).inc()

    def http_observed(self, route: str, method: str, status: int, seconds: float) -> None:
        """Count one HTTP response; a route or method that isn't ours goes to `unmatched` or `OTHER`."""
        self.http_requests.at(route, method, str(status)).inc()
        self.http_duration.at(route).observe(seconds)


@lru_cache(maxsize=16)
def _negotiated(accept: str) -> tuple[Callable[..., bytes], str]:
    """Return prometheus_client's encoder and content type for an Accept header."""
    try:
        return choose_encoder(accept)
    except TypeError:  # it compares a version that is no number with numbers
        return choose_encoder("")
