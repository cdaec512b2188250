"""scripts/reproduce.py: tables of records that the pages have or are about to have."""

from typing import Any

from scripts.reproduce import RENDERERS

ARM: dict[str, Any] = {
    "rates": [200.0, 210.5, 190.0], "median": 200.0, "ttft_p50_ms": 81.4, "ttft_p99_ms": None, "itl_p50_ms": 3.2,
    "itl_p99_ms": 9.9, "peak_mib": 512,
}  # fmt: skip
SERVING: dict[str, Any] = {
    "model": "m.gguf",
    "machine": {"cpu": "a CPU", "cores": 2, "commit": "abc"},
    "method": {"repeats": 3, "window_s": 6.0},
    "arms": {"Ours": {"over_http": True}, "Theirs": {"over_http": False}},
    "missing": {"vLLM": "not given"},
    "cells": [
        {
            "workload": "W1", "concurrency": 8, "rate": "output tokens/s",
            "arms": {"Ours": ARM, "Theirs": {**ARM, "rates": [100.0], "median": 100.0}},
            "best_peer": "Theirs", "ratio_to_best_peer": 2.0, "ratio_spread": [1.9, 2.105],
            "other_ratios": {"Ours in bfloat16": {"ratio": 1.5, "spread": [1.25, 1.75]}},
        }
    ],
}  # fmt: skip


def test_serving_table_names_every_arm_the_ratio_and_what_is_missing() -> None:
    lines = RENDERERS["cpu_serving"](SERVING).splitlines()
    assert lines[2:6] == [
        "| W1, 8 | Ours | 200.0 (190.0 to 210.5) | 81 / – | 3 / 10 | 512 |",
        "| W1, 8 | **Theirs** | 100.0 (100.0 to 100.0) | 81 / – | 3 / 10 | 512 |",
        "| W1, 8 | ours over the best peer | 2.00 times, rounds 1.90 to 2.10 | | | |",
        "| W1, 8 | Ours in bfloat16 over the best peer | 1.50 times, rounds 1.25 to 1.75 | | | |",
    ]
    assert "over HTTP but Theirs" in lines[-1]
    assert lines[-1].endswith("Not measured: vLLM: not given.")


def test_serving_ratios_have_one_line_a_cell() -> None:
    lines = RENDERERS["cpu_serving_ratios"](SERVING).splitlines()
    assert lines[2] == "| W1, 8 streams, output tokens/s | 200 | 100, Theirs | 2.00 (1.90 to 2.10) |"


def test_quality_table_shows_divergences_and_agreement() -> None:
    row = {"file": "m.gguf", "engine": "Ours", "kv": "float16", "mean": 0.00281, "p99_9": 0.0265, "same_top": 0.9756,
           "num_tokens": 4096}  # fmt: skip
    table = RENDERERS["quality"]({"rows": [row], "window": 256, "machine": {"cpu": "a CPU", "commit": "abc"}})
    assert "| m.gguf | Ours | float16 | 2.81e-03 | 2.65e-02 | 97.56% |" in table
    assert "from float32 on the file's own dequantised weights, 4096 tokens" in table


def test_quality_table_of_int8_says_whose_weights_are_exact() -> None:
    ours = {"file": "m.gguf", "exact": "m.gguf", "weights": "int8", "engine": "Ours", "kv": "float16", "mean": 0.004,
            "p99_9": 0.03, "same_top": 0.96, "num_tokens": 4096}  # fmt: skip
    theirs = {**ours, "file": "m8.gguf", "weights": "of the file", "engine": "Theirs"}
    table = RENDERERS["quality"]({"rows": [ours, theirs], "window": 256, "machine": {"cpu": "a CPU", "commit": "abc"}})
    assert "| m.gguf as int8 | Ours |" in table
    assert "| m8.gguf | Theirs |" in table
    assert "from float32 on the weights of m.gguf, 4096 tokens" in table


def test_quality_table_says_what_was_multiplied_in_bfloat16() -> None:
    row = {"file": "m.gguf", "weights": "Q4_1:bfloat16", "engine": "Ours", "kv": "float16", "mean": 0.001,
           "p99_9": 0.01, "same_top": 0.98, "num_tokens": 4096}  # fmt: skip
    table = RENDERERS["quality"]({"rows": [row], "window": 256, "machine": {"cpu": "a CPU", "commit": "abc"}})
    assert "| m.gguf in bfloat16 | Ours |" in table


def test_overhead_table_shows_rates_and_what_was_added() -> None:
    ratio = {"mean": 0.9927, "low": 0.9777, "high": 1.0082}
    record = {
        "model": "m.gguf", "machine": {"cpu": "a CPU", "cores": 2, "commit": "abc"}, "streams": 8, "prompt_tokens": 128,
        "new_tokens": 64, "viewers": 1, "scrapes": 9, "pairs": 12, "block_ratios": [0.99, 1.01],
        "throughput_ratio": ratio, "cpu_per_token_ratio": ratio, "on_tokens_per_s": 352.6, "off_tokens_per_s": 358.2,
        "service_us_per_token": {"on": 151.8, "off": 123.4}, "engine_us_per_token": {"on": 5279.4, "off": 5255.7},
        "added_us_per_token": {"service": 28.1, "viewer": 1.4, "engine_events": 2.31,
                               "share": {"mean": 0.0059, "low": 0.0055, "high": 0.0063}},
        "resting_share": {"on": 0.005, "off": 0.004}, "recorder_us_per_step": 29.7,
    }  # fmt: skip
    lines = RENDERERS["instruments_overhead"](record).splitlines()
    assert lines[2] == "| output tokens/s | 352.6 | 358.2 | 0.9927 (0.9777 to 1.0082) |"
    assert lines[6] == (
        "| added by instruments, µs a token | service 28.1, viewer 1.4, events in the engine 2.31 | | "
        "0.59% (0.55% to 0.63%) of all |"
    )
