"""The exposition: names, closed label sets, exemplars, content negotiation."""

import re
from typing import Any

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from observability.exposition import Exposition
from observability.instruments import Counter, Histogram, HistogramSeries, Label
from observability.metrics import Metrics
from tests.support.event_script import Script

OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"
TRACE_ID = "0af7651916cd43dd8448eb211c80319c"


def test_every_metric_of_the_contract_is_declared_with_its_labels() -> None:
    expected = {
        "requests_total": ["finish_reason"],
        "requests_rejected_total": ["error_type"],
        "requests_running": [],
        "requests_waiting": ["reason"],
        "oldest_waiting_seconds": [],
        "prompt_tokens_total": ["source"],
        "generated_tokens_total": [],
        "prefix_cache_queries_tokens_total": [],
        "prefix_cache_hit_tokens_total": [],
        "prefix_miss_total": ["why"],
        "time_to_first_token_seconds": [],
        "inter_token_latency_seconds": [],
        "time_per_output_token_seconds": [],
        "request_duration_seconds": [],
        "request_queue_seconds": [],
        "request_prefill_seconds": [],
        "request_decode_seconds": [],
        "unattributed_seconds": [],
        "step_duration_seconds": ["kind"],
        "step_tokens": ["phase"],
        "decode_batch_size": [],
        "engine_steps_total": [],
        "engine_stage_seconds_total": ["stage"],
        "kv_blocks": ["state"],
        "kv_usage_ratio": [],
        "kv_evictions_total": [],
        "preemptions_total": [],
        "recomputed_tokens_total": [],
        "kv_tail_waste_tokens": [],
        "speculative_proposed_tokens_total": [],
        "speculative_accepted_tokens_total": [],
        "http_requests_total": ["route", "method", "status"],
        "http_request_duration_seconds": ["route"],
        "send_blocked_seconds_total": [],
        "engine_up": [],
        "engine_restarts_total": [],
        "engine_heartbeat_age_seconds": [],
        "events_dropped_total": ["where"],
        "build_info": ["version", "python"],
        "model_info": ["model", "executor"],
    }
    declared = {i.name: list(i.label_names) for i in Metrics().instruments()}
    assert {name: declared.get(f"pellucid_{name}") for name in expected} == expected
    assert all(i.help.endswith(".") for i in Metrics().instruments())


def test_text_and_openmetrics_expositions_parse_and_agree() -> None:
    script = Script()
    script.engine_started()
    text, text_type = script.metrics.render("text/plain")
    openmetrics, openmetrics_type = script.metrics.render(OPENMETRICS)
    assert text_type.startswith("text/plain")
    assert openmetrics_type.startswith("application/openmetrics-text")
    names = {family.name for family in parse_openmetrics(openmetrics.decode())}
    assert names == {family.name for family in parse_text(text.decode())}
    assert {"pellucid_requests", "pellucid_build_info", "pellucid_model_info", "process_cpu_seconds"} <= names


def test_exemplars_carry_the_trace_id_in_openmetrics_only() -> None:
    script = Script()
    script.open("a", trace_id=TRACE_ID)
    script.arrive("a")
    script.at(100.3).tokens("a")
    script.recorder.sent_first("a", script.t)
    openmetrics, _ = script.metrics.render(OPENMETRICS)
    lines = [line for line in openmetrics.decode().splitlines() if " # {" in line]
    assert len(lines) == 1
    assert re.fullmatch(
        rf'pellucid_time_to_first_token_seconds_bucket{{le="0.5"}} 1.0 # {{trace_id="{TRACE_ID}"}} 0\.2999\d* 100.3',
        lines[0],
    )
    assert TRACE_ID not in script.metrics.render("")[0].decode()


def test_request_without_a_sampled_trace_leaves_no_exemplar() -> None:
    script = Script()
    script.open("a")
    script.arrive("a")
    script.at(100.3).tokens("a")
    script.recorder.sent_first("a", script.t)
    assert " # {" not in script.metrics.render(OPENMETRICS)[0].decode()


def test_only_histograms_that_say_so_get_exemplars_and_all_of_them_can_be_forgotten() -> None:
    script = Script()
    for name in ("a", "b"):
        script.open(name, trace_id=TRACE_ID)
        script.arrive(name)
        script.schedule(name)
        for total in range(1, 4):
            script.at(script.t + 0.1).tokens(name, total=total)
        script.recorder.sent_first(name, script.t)
        script.finish(name, num_output_tokens=3)
        script.recorder.sent_last(name, script.t + 0.1)
    histograms = [each for each in script.metrics.instruments() if isinstance(each, Histogram)]

    def with_exemplars() -> set[str]:
        return {each.name for each in histograms if any(series.exemplars for series in each.all_series())}

    assert with_exemplars() == {each.name for each in histograms if each.has_exemplars}
    script.metrics.forget_exemplars(lambda _: False)
    assert with_exemplars() == set()


def test_random_paths_and_odd_methods_make_no_new_series() -> None:
    metrics = Metrics(routes=("/v1/models",))
    metrics.http_observed("/v1/models", "GET", 200, 0.01)
    metrics.http_observed("/nothing", "BREW", 404, 0.01)
    before = metrics.render()[0].count(b"\n")
    for i in range(5_000):
        metrics.http_observed(f"/{i}", f"M{i}", 404, 0.01)
        metrics.rejected(f"error {i}")
    body = metrics.render()[0].decode()
    assert body.count("\n") == before
    assert 'pellucid_http_requests_total{method="OTHER",route="unmatched",status="404"} 5001.0' in body
    assert 'pellucid_requests_rejected_total{error_type="other"} 5000.0' in body


def test_series_with_one_label_exist_at_zero_from_the_start() -> None:
    body = Metrics().render()[0].decode()
    assert 'pellucid_requests_total{finish_reason="abort"} 0.0' in body
    assert 'pellucid_engine_stage_seconds_total{stage="idle"} 0.0' in body


def test_label_value_of_ours_that_is_not_declared_is_an_error() -> None:
    counter = Counter("x_total", "X.", Label("stage", ("a", "b")))
    with pytest.raises(ValueError, match="label `stage` takes one of a, b, got 'c'"):
        counter.at("c")


def test_wrong_number_of_label_values_is_an_error() -> None:
    with pytest.raises(ValueError, match="has 1 labels, got 2 values"):
        Counter("x_total", "X.", Label("stage", ("a", "b"))).at("a", "b")


def test_histogram_bounds_are_inclusive_and_must_ascend() -> None:
    series = HistogramSeries((1.0, 2.0))
    for value in (0.5, 1.0, 1.5, 2.0, 2.5):
        series.observe(value)
    assert series.counts == [2, 2, 1]
    assert (series.count, series.sum) == (5, 7.5)
    with pytest.raises(ValueError, match="must ascend"):
        Histogram("x", "X.", bounds=(2.0, 1.0))


def test_newest_exemplar_of_a_bucket_wins() -> None:
    series = HistogramSeries((1.0,))
    series.observe(0.5, trace_id="a", wall=1.0)
    series.observe(0.6, trace_id="b", wall=2.0)
    series.observe(0.7)
    assert series.exemplars == {0: ("b", 0.6, 2.0)}


def test_accept_headers_of_any_version_share_what_is_kept_of_openmetrics(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Exposition] = []

    def counted(*args: Any, **settings: Any) -> Exposition:
        made.append(Exposition(*args, **settings))
        return made[-1]

    monkeypatch.setattr("observability.metrics.Exposition", counted)
    metrics = Metrics()
    body, _ = metrics.render(OPENMETRICS)
    for version in ("1.0.1", "1.2.3", "2.0.0"):
        other_body, other_kind = metrics.render(f"application/openmetrics-text; version={version}")
        assert f"version={version}" in other_kind
        assert _of_ours(other_body) == _of_ours(body)
    assert len(made) == 1


@pytest.mark.parametrize("accept", ["application/openmetrics-text; version=x", "text/plain; version=x.y"])
def test_accept_header_with_a_version_that_is_no_number_gets_the_text_format(accept: str) -> None:
    body, kind = Metrics().render(accept)
    assert kind.startswith("text/plain; version=0.0.4")
    assert b"pellucid_requests_total" in body


def _of_ours(body: bytes) -> list[bytes]:
    return [line for line in body.splitlines() if line.startswith(b"pellucid_")]
