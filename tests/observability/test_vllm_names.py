"""vLLM's names: there with its labels, and the same numbers as ours."""

from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics

from observability.vllm_names import VLLM_NAMES, VllmNames
from tests.support.event_script import Script

OPENMETRICS = "application/openmetrics-text; version=1.0.0"
LABELS = '{engine="0",model_name="smol"}'


def loaded_script() -> Script:
    script = Script()
    script.metrics.also_expose(VllmNames(script.metrics, model_name="smol"))
    script.engine_started()
    script.at(101.0).open("a", trace_id="a" * 32)
    script.arrive("a", num_prompt_tokens=40)
    script.look_up("a", num_prompt_tokens=40, num_matched_tokens=16)
    script.at(101.5).schedule("a", num_cached_tokens=16)
    script.chunk("a", 16, 24)
    script.at(102.0).tokens("a")
    script.recorder.sent_first("a", 102.0)
    script.at(103.0).tokens("a", total=2)
    script.finish("a", num_output_tokens=2)
    script.recorder.sent_last("a", 103.5)
    script.arrive("b")
    return script


def test_every_name_of_the_table_is_exposed_and_no_other() -> None:
    body = loaded_script().metrics.render(OPENMETRICS)[0].decode()
    exposed = {f.name: f.type for f in parse_openmetrics(body) if f.name.startswith("vllm:")}
    assert exposed == {f"vllm:{entry.name}": entry.kind for entry in VLLM_NAMES}


def test_values_are_those_of_our_own_metrics() -> None:
    scrape = loaded_script().scrape()
    expected = {
        f"vllm:num_requests_running{LABELS}": 0,
        f"vllm:num_requests_waiting{LABELS}": 1,
        f"vllm:prompt_tokens_total{LABELS}": 40,
        f"vllm:prompt_tokens_cached_total{LABELS}": 16,
        f"vllm:generation_tokens_total{LABELS}": 2,
        f"vllm:prefix_cache_queries_total{LABELS}": 40,
        f"vllm:prefix_cache_hits_total{LABELS}": 16,
        f"vllm:time_to_first_token_seconds_sum{LABELS}": 1.0,
        f"vllm:inter_token_latency_seconds_sum{LABELS}": 1.0,
        f"vllm:e2e_request_latency_seconds_sum{LABELS}": 2.5,
        f"vllm:request_queue_time_seconds_sum{LABELS}": 0.5,
        f"vllm:request_prefill_time_seconds_sum{LABELS}": 0.5,
        f"vllm:request_decode_time_seconds_sum{LABELS}": 1.0,
        f"vllm:request_generation_tokens_sum{LABELS}": 2,
        'vllm:request_success_total{engine="0",finished_reason="stop",model_name="smol"}': 1,
        'vllm:prompt_tokens_by_source_total{engine="0",model_name="smol",source="local_cache_hit"}': 16,
        'vllm:cache_config_info{block_size="16",enable_prefix_caching="True",engine="0",num_gpu_blocks="64"}': 1,
    }
    assert {name: scrape.get(name) for name in expected} == expected


def test_without_the_option_none_of_them_is_exposed() -> None:
    script = Script()
    script.engine_started()
    assert b"vllm:" not in script.metrics.render(OPENMETRICS)[0]
