/** What each chart of the Live tab draws, by its name in the template. */

import { durationText, number } from "../format.js";
import { WAIT_REASONS } from "../history.js";

const percent = (value) => (Number.isNaN(value) ? "–" : `${number(value)} %`);

const WAIT_LABELS = {
  kv_blocks: "KV blocks",
  token_budget: "token budget",
  max_num_seqs: "a sequence slot",
  shared_prefix: "a shared prefix",
  next_step: "the next step",
};

export const CHARTS = {
  throughput: {
    format: number,
    smooth: 5,
    series: [
      { key: "generated_tokens", label: "output tok/s", color: "--decode", filled: true },
      { key: "prefill_tokens", label: "prefill tok/s", color: "--prefill", dashed: true },
    ],
  },
  requests: {
    format: number,
    series: [
      { key: "running", label: "running", color: "--running", filled: true },
      { key: "waiting", label: "waiting", color: "--waiting", dashed: true },
    ],
  },
  waiting: {
    format: number,
    stacked: true,
    series: WAIT_REASONS.map((reason, i) => ({ key: `waiting_${reason}`, label: WAIT_LABELS[reason], color: `--wait-${i + 1}` })),
  },
  ttft: {
    format: durationText,
    series: [
      { key: "ttft_p50_ms", label: "p50", color: "--p50" },
      { key: "ttft_p90_ms", label: "p90", color: "--p90" },
      { key: "ttft_p99_ms", label: "p99", color: "--p99", dashed: true },
    ],
  },
  itl: {
    format: durationText,
    series: [
      { key: "itl_p50_ms", label: "p50", color: "--p50" },
      { key: "itl_p99_ms", label: "p99", color: "--p99", dashed: true },
    ],
  },
  kv: {
    format: number,
    stacked: true,
    full: true,
    series: [
      { key: "kv_referenced", label: "referenced", color: "--kv-referenced" },
      { key: "kv_cached", label: "cached", color: "--kv-cached" },
      { key: "kv_free", label: "free", color: "--kv-free" },
    ],
  },
  batch: {
    format: number,
    stacked: true,
    series: [
      { key: "batch_decode", label: "decode tokens", color: "--decode" },
      { key: "batch_prefill", label: "prefill tokens", color: "--prefill" },
    ],
  },
  time: {
    format: percent,
    stacked: true,
    full: true,
    smooth: 3,
    series: [
      { key: "execute_percent", label: "execute", color: "--stage-execute" },
      { key: "sample_percent", label: "sample", color: "--stage-sample" },
      { key: "schedule_percent", label: "schedule", color: "--stage-schedule" },
      { key: "update_percent", label: "update", color: "--stage-update" },
      { key: "other_percent", label: "other", color: "--stage-other" },
      { key: "idle_percent", label: "idle", color: "--kv-free" },
    ],
  },
  pressure: {
    format: number,
    series: [
      { key: "preemptions", label: "preemptions/s", color: "--waiting" },
      { key: "kv_evictions", label: "evictions/s", color: "--p90", dashed: true },
    ],
  },
  hits: {
    format: percent,
    series: [{ key: "hit_percent", label: "prefix hits", color: "--decode", filled: true }],
  },
};
