"""The flags of `pellucid serve`, and the two configurations made from them."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from engine.config import EngineConfig
from engine.errors import ConfigError
from engine.model.catalog import DEFAULT_MODEL
from observability.otlp_settings import otlp_settings, sampling
from observability.trace_context import Sampling
from service.flags import Flag, num_bytes, switch, words
from service.limits import RequestLimits
from service.settings import METRICS_COMPAT, ServiceSettings

T = TypeVar("T")

NO_TRACES = Sampling(0.0, follows_parent=False)

LOG_LEVELS = ("debug", "info", "warning", "error")

ENGINE_FLAGS = (
    Flag("--model", str, DEFAULT_MODEL, "a .gguf file, a Hugging Face directory, a name, a hub id or random:PRESET"),
    Flag("--dtype", str, "auto", "of weights and computation", ("auto", "float32", "bfloat16", "float16", "int8")),
    Flag(
        "--kv-dtype",
        str,
        "auto",
        "of the KV cache; the native executor has all, the others that of their computation",
        ("auto", "float32", "bfloat16", "float16", "int8"),
    ),
    Flag("--executor", str, "auto", "what computes", ("auto", "native", "torch", "reference")),
    Flag("--device", str, "auto", "cpu, cuda, cuda:1 ..."),
    Flag("--threads", int, 0, "compute threads on CPUs", shown_default="one per physical core"),
    Flag("--block-size", int, 16, "tokens per KV block"),
    Flag("--num-kv-blocks", int, 0, "blocks in the KV pool", shown_default="as many as --kv-cache-bytes holds"),
    Flag(
        "--kv-cache-bytes",
        num_bytes,
        0,
        "memory of the KV pool, taken as it fills; 512M, 2G ...",
        shown_default="one sequence of full length, or 136 tokens for each of --max-num-seqs; at most 1G",
    ),
    Flag("--max-num-seqs", int, 64, "sequences running at once"),
    Flag(
        "--max-num-batched-tokens",
        int,
        0,
        "tokens computed in one step at most",
        shown_default="256 on the native executor, 512 on the others",
    ),
    Flag("--max-model-len", int, 0, "tokens of prompt + output", shown_default="what the model was trained for"),
    Flag("--no-prefix-cache", switch, False, "compute every prompt in full"),
    Flag(
        "--overflow",
        str,
        "reject",
        "a request whose prompt fits but whose prompt + max_tokens doesn't is refused, or ends early with `length`",
        ("reject", "truncate"),
    ),
    Flag(
        "--no-instruments",
        switch,
        False,
        "no events, metrics, traces or telemetry; there to measure what they cost",
    ),
)
NEGATIVE_FLAGS = ("no_prefix_cache", "no_instruments")

_LIMITS = RequestLimits()

SERVICE_FLAGS = (
    Flag("--host", str, "127.0.0.1", "address to listen on"),
    Flag("--port", int, 8100, "port to listen on; 0 takes a free one"),
    Flag(
        "--served-model-name",
        words,
        (),
        "names for `model` in requests, the first is shown",
        shown_default="the model's",
    ),
    Flag("--api-key-file", str, "", "file with one key per line; $PELLUCID_API_KEY holds one", shown_default="no keys"),
    Flag("--cors-origin", words, (), "origins whose pages may call, comma-separated", shown_default="none"),
    Flag("--max-queue", int, 256, "choices that may wait beyond those that run; more are refused with 429"),
    Flag("--strict-params", switch, False, "refuse unknown fields instead of naming them in x-ignored-params"),
    Flag("--timings", switch, False, "every answer carries `timings` and `metrics`"),
    Flag("--keep-alive", float, 5.0, "seconds of silence in a stream before a comment line"),
    Flag("--filler", float, 30.0, "seconds without a chunk before an empty one is sent"),
    Flag("--grace", float, 30.0, "seconds that running answers get when the server is told to stop"),
    Flag("--ready-heartbeat", float, 10.0, "seconds of engine silence after which /ready is 503"),
    Flag("--live-heartbeat", float, 60.0, "seconds of engine silence after which /health is 503"),
    Flag("--text-threads", int, 2, "threads for templates and tokenizers"),
    Flag("--trace-dir", str, "", "directory for recordings of the event stream", shown_default="no recordings"),
    Flag("--trace-max-bytes", num_bytes, 1 << 30, "size of one recording", shown_default="1G"),
    Flag("--record", switch, False, "record the event stream from the start"),
    Flag("--ring-events", int, 65_536, "events kept in memory for the live feed, the snapshot and downloads"),
    Flag("--max-body-bytes", num_bytes, _LIMITS.body_bytes, "size of a request's body", shown_default="4M"),
    Flag("--max-json-depth", int, _LIMITS.json_depth, "nesting of a request's body"),
    Flag("--max-n", int, _LIMITS.n, "choices of one prompt"),
    Flag("--max-prompts", int, _LIMITS.prompts, "prompts of one completion call"),
    Flag("--max-stop-strings", int, _LIMITS.stop_strings, "stop strings of one request"),
    Flag("--max-stop-bytes", int, _LIMITS.stop_bytes, "bytes of one stop string"),
    Flag("--max-logprobs", int, _LIMITS.logprobs, "alternatives per position"),
    Flag("--max-bias-entries", int, _LIMITS.bias_entries, "entries of logit_bias"),
    Flag("--max-token-ids", int, _LIMITS.token_ids, "entries of stop_token_ids and bad_words"),
    Flag("--telemetry-flush", float, 3.0, "seconds that queued spans get when the server stops (OTEL_* say where to)"),
    Flag(
        "--metrics-compat",
        words,
        (),
        f"other projects' metric names to expose as well: {', '.join(METRICS_COMPAT)}",
        shown_default="none",
    ),
    Flag(
        "--log-content",
        switch,
        False,
        "prompts and answers may appear in spans, and prompts in telemetry around where a cached prefix ended",
    ),
    Flag("--log-level", str, "info", "what goes to stderr", LOG_LEVELS),
)


def engine_config(values: Mapping[str, Any]) -> EngineConfig:
    """Build the engine's configuration from resolved flags. Raises ConfigError."""
    fields = {flag.key: values[flag.key] for flag in ENGINE_FLAGS if flag.key not in NEGATIVE_FLAGS}
    return EngineConfig(**fields, prefix_cache=not values["no_prefix_cache"], instruments=not values["no_instruments"])


def service_settings(values: Mapping[str, Any], environment: Mapping[str, str]) -> ServiceSettings:
    """Build the service's settings from resolved flags. Raises ConfigError."""
    return ServiceSettings(
        host=values["host"],
        port=values["port"],
        served_model_names=values["served_model_name"],
        api_keys=_api_keys(values["api_key_file"], environment.get("PELLUCID_API_KEY", "")),
        cors_origins=values["cors_origin"],
        max_queue=values["max_queue"],
        limits=RequestLimits(
            body_bytes=values["max_body_bytes"],
            json_depth=values["max_json_depth"],
            n=values["max_n"],
            prompts=values["max_prompts"],
            stop_strings=values["max_stop_strings"],
            stop_bytes=values["max_stop_bytes"],
            logprobs=values["max_logprobs"],
            bias_entries=values["max_bias_entries"],
            token_ids=values["max_token_ids"],
        ),
        strict_params=values["strict_params"],
        timings=values["timings"],
        keep_alive_s=values["keep_alive"],
        filler_s=values["filler"],
        grace_s=values["grace"],
        ready_heartbeat_s=values["ready_heartbeat"],
        live_heartbeat_s=values["live_heartbeat"],
        text_threads=values["text_threads"],
        trace_dir=values["trace_dir"],
        trace_max_bytes=values["trace_max_bytes"],
        record=values["record"],
        ring_events=values["ring_events"],
        log_content=values["log_content"],
        otlp=_telemetry(otlp_settings, environment),
        sampling=_telemetry(sampling, environment) if not values["no_instruments"] else NO_TRACES,
        instruments=not values["no_instruments"],
        telemetry_flush_s=values["telemetry_flush"],
        metrics_compat=values["metrics_compat"],
    )


def _telemetry(read: Callable[[Mapping[str, str]], T], environment: Mapping[str, str]) -> T:
    try:
        return read(environment)
    except ValueError as error:
        raise ConfigError(str(error)) from None


def _api_keys(path: str, given: str) -> frozenset[str]:
    """Read keys from the file and the variable; a file without any is refused, it would leave the server open."""
    keys = set(words(given))
    if path:
        try:
            lines = Path(path).expanduser().read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"--api-key-file can't be read: {error}") from None
        in_file = {line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#")}
        if not in_file:
            raise ConfigError(f"--api-key-file has no key in it: {path}")
        keys |= in_file
    return frozenset(keys)
