/** The columns of the history in `/stats` that the page keeps: an hour of one row a second. */

export const HISTORY_ROWS = 3600;

export const HISTORY_COLUMNS = [
  "t", "generated_tokens", "prefill_tokens", "running", "waiting", "kv_referenced", "kv_cached", "kv_free",
  "batch_prefill", "batch_decode", "ttft_p50_ms", "ttft_p90_ms", "ttft_p99_ms", "itl_p50_ms", "itl_p99_ms",
];
