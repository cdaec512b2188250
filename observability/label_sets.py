"""The closed label sets of every metric: no client text can ever become a series."""

FINISH_REASONS = ("stop", "length", "abort", "error")
WAIT_REASONS = ("kv_blocks", "token_budget", "max_num_seqs", "shared_prefix", "next_step")
MISS_REASONS = ("cold", "diverged", "evicted", "salt", "tail", "disabled")
STAGES = ("schedule", "execute", "sample", "update", "messages", "other", "idle")
STEP_KINDS = ("prefill", "decode", "mixed")
BLOCK_STATES = ("free", "referenced", "cached")
SPAN_DROPS = ("queue_full", "export_failed", "shutdown", "trace_full")
PROMPT_SOURCES = ("computed", "cached", "recomputed")

# Where a request's wall time goes: see observability/attribution.py. `queue_...` is split by what was waited for.
QUEUE_CAUSES = ("queue_inbox", *(f"queue_{reason}" for reason in WAIT_REASONS))
CAUSES = (
    "tokenize",
    *QUEUE_CAUSES,
    "prefill",
    "decode",
    "interference",
    "preempted",
    "recompute",
    "host",
    "detokenize",
    "send",
    "unattributed",
)

ERROR_TYPES = (
    "invalid_request_error",
    "authentication_error",
    "permission_error",
    "not_found_error",
    "method_not_allowed",
    "request_too_large",
    "unsupported_media_type",
    "conflict_error",
    "rate_limit_exceeded",
    "request_cancelled",
    "conflict_error",
    "service_unavailable",
    "internal_error",
)
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
STATUSES = tuple(str(status) for status in range(100, 600))
