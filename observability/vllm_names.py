"""vLLM's names for the same numbers, so that dashboards and autoscalers written for it work here (`--metrics-compat`).

Every family is a projection of one of ours: nothing is counted a second time. Labels are vLLM's `model_name` and
`engine`, plus those of the table. Bucket bounds are ours, finer than vLLM's where its own begin at 0.3 s; quantiles
over `le` come out of either. Where a definition differs, the table says so.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from observability.instruments import Histogram, exposed_buckets
from observability.metrics import Metrics

PREFIX = "vllm:"
ENGINE = "0"
_LABELS = ("model_name", "engine")


@dataclass(frozen=True, slots=True)
class VllmName:
    """One family under vLLM's name.

    Attributes:
        name: without the prefix; a counter's without `_total`.
        kind: `gauge`, `counter` or `histogram`.
        ours: what it is projected from.
        note: how the meaning differs, "" if it doesn't.
    """

    name: str
    kind: str
    ours: str
    note: str = ""


# fmt: off
VLLM_NAMES = (
    VllmName("num_requests_running", "gauge", "requests_running"),
    VllmName("num_requests_waiting", "gauge", "requests_waiting", "summed over the reasons"),
    VllmName("kv_cache_usage_perc", "gauge", "kv_usage_ratio", "0 to 1, despite the name"),
    VllmName("prefix_cache_queries", "counter", "prefix_cache_queries_tokens_total"),
    VllmName("prefix_cache_hits", "counter", "prefix_cache_hit_tokens_total"),
    VllmName("num_preemptions", "counter", "preemptions_total"),
    VllmName("prompt_tokens", "counter", "prompt_tokens_total", "computed + cached, recomputed ones not again"),
    VllmName("prompt_tokens_cached", "counter", "prompt_tokens_total", "source cached"),
    VllmName("prompt_tokens_by_source", "counter", "prompt_tokens_total", "`source`: local_compute, local_cache_hit"),
    VllmName("generation_tokens", "counter", "generated_tokens_total"),
    VllmName("request_success", "counter", "requests_total", "`finished_reason`; failures and aborts count too"),
    VllmName("time_to_first_token_seconds", "histogram", "time_to_first_token_seconds"),
    VllmName("inter_token_latency_seconds", "histogram", "inter_token_latency_seconds",
             "every token has a gap; vLLM's several tokens of one step have one"),
    VllmName("time_per_output_token_seconds", "histogram", "inter_token_latency_seconds", "the gap's older name"),
    VllmName("request_time_per_output_token_seconds", "histogram", "time_per_output_token_seconds",
             "up to the last byte sent, and none for one-token answers; vLLM takes the engine's last token, and 0"),
    VllmName("e2e_request_latency_seconds", "histogram", "request_duration_seconds"),
    VllmName("request_queue_time_seconds", "histogram", "request_first_queue_seconds"),
    VllmName("request_prefill_time_seconds", "histogram", "request_prefill_seconds"),
    VllmName("request_decode_time_seconds", "histogram", "request_decode_seconds"),
    VllmName("request_prompt_tokens", "histogram", "request_prompt_tokens"),
    VllmName("request_generation_tokens", "histogram", "request_output_tokens"),
    VllmName("cache_config_info", "gauge", "kv_cache_info", "`block_size`, `num_gpu_blocks`, `enable_prefix_caching`"),
)
# fmt: on


class VllmNames(Collector):
    """The families of VLLM_NAMES.

    Args:
        metrics: what they are projected from; its gauges are refreshed by its own `render`.
        model_name: the first name that the model is served under.
    """

    def __init__(self, metrics: Metrics, *, model_name: str) -> None:
        self._metrics = metrics
        self._labels = (model_name, ENGINE)

    def collect(self) -> Iterator[Metric]:
        yield from self._gauges()
        yield from self._counters()
        metrics = self._metrics
        for name, ours in (
            ("time_to_first_token_seconds", metrics.ttft),
            ("inter_token_latency_seconds", metrics.itl),
            ("time_per_output_token_seconds", metrics.itl),
            ("request_time_per_output_token_seconds", metrics.tpot),
            ("e2e_request_latency_seconds", metrics.duration),
            ("request_queue_time_seconds", metrics.first_queue),
            ("request_prefill_time_seconds", metrics.prefill),
            ("request_decode_time_seconds", metrics.decode),
            ("request_prompt_tokens", metrics.request_prompt_tokens),
            ("request_generation_tokens", metrics.request_output_tokens),
        ):
            yield self._histogram(name, ours)

    def _gauges(self) -> Iterator[Metric]:
        metrics = self._metrics
        waiting = sum(series.value for _, series in metrics.requests_waiting.items())
        for name, value in (
            ("num_requests_running", metrics.requests_running.at().value),
            ("num_requests_waiting", waiting),
            ("kv_cache_usage_perc", metrics.kv_usage.at().value),
        ):
            gauge = GaugeMetricFamily(PREFIX + name, _help(name), labels=_LABELS)
            gauge.add_metric(self._labels, value)
            yield gauge
        config = ("block_size", "num_gpu_blocks", "enable_prefix_caching")
        info = GaugeMetricFamily(PREFIX + "cache_config_info", _help("cache_config_info"), labels=(*config, "engine"))
        if metrics.cache_info.values is not None:
            block_size, num_blocks, prefix_cache = metrics.cache_info.values
            info.add_metric((block_size, num_blocks, prefix_cache.capitalize(), ENGINE), 1)
        yield info

    def _counters(self) -> Iterator[Metric]:
        metrics = self._metrics
        computed, cached = metrics.prompt_tokens.at("computed").value, metrics.prompt_tokens.at("cached").value
        yield self._counter("prefix_cache_queries", {(): metrics.prefix_queries.total()})
        yield self._counter("prefix_cache_hits", {(): metrics.prefix_hits.total()})
        yield self._counter("num_preemptions", {(): metrics.preemptions.total()})
        yield self._counter("prompt_tokens", {(): computed + cached})
        yield self._counter("prompt_tokens_cached", {(): cached})
        sources: dict[tuple[str, ...], float] = {("local_compute",): computed, ("local_cache_hit",): cached}
        yield self._counter("prompt_tokens_by_source", sources, "source")
        yield self._counter("generation_tokens", {(): metrics.generated_tokens.total()})
        ended: dict[tuple[str, ...], float] = {values: series.value for values, series in metrics.requests.items()}
        yield self._counter("request_success", ended, "finished_reason")

    def _counter(self, name: str, values: dict[tuple[str, ...], float], *extra_labels: str) -> Metric:
        family = CounterMetricFamily(PREFIX + name, _help(name), labels=(*_LABELS, *extra_labels))
        for extra, value in values.items():
            family.add_metric((*self._labels, *extra), value)
        return family

    def _histogram(self, name: str, ours: Histogram) -> Metric:
        family = HistogramMetricFamily(PREFIX + name, _help(name), labels=_LABELS)
        series = ours.at()
        family.add_metric(self._labels, exposed_buckets(series), series.sum)
        return family


def _help(name: str) -> str:
    entry = next(entry for entry in VLLM_NAMES if entry.name == name)
    return f"pellucid_{entry.ours}{f' ({entry.note})' if entry.note else ''}."
