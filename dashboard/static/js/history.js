/** The page's hour of history: the columns of `/stats` as numbers, and what is computed from several of them. */

import { Columns } from "./columns.js";

export const HISTORY_ROWS = 3600;

export const WAIT_REASONS = ["kv_blocks", "token_budget", "max_num_seqs", "shared_prefix", "next_step"];

const AS_THEY_COME = [
  "t", "generated_tokens", "prefill_tokens", "running", "waiting", "kv_referenced", "kv_cached", "kv_free",
  "batch_prefill", "batch_decode", "ttft_p50_ms", "ttft_p90_ms", "ttft_p99_ms", "itl_p50_ms", "itl_p99_ms",
  "preemptions", "kv_evictions", "recomputed_tokens", "prefix_queries", "prefix_hits",
];

const STAGES = ["schedule", "execute", "sample", "update"];

export const HISTORY_COLUMNS = [
  ...AS_THEY_COME,
  ...WAIT_REASONS.map((reason) => `waiting_${reason}`),
  ...STAGES.map((stage) => `${stage}_percent`), "other_percent", "idle_percent",
  "hit_percent",
];

const HIT_WINDOW_S = 60;

/** An hour of rows. A row's memory is the same whatever happens in it. */
export class History extends Columns {
  constructor() {
    super(HISTORY_COLUMNS, HISTORY_ROWS);
  }

  /**
   * @param {Record<string, (number|string|null)[]>} history of `/stats`
   * @returns {number} how many rows were new
   */
  append(history) {
    const added = super.append({ ...history, ...waitingByReason(history), ...timeSplit(history) });
    for (let row = this.length - added; row < this.length; row++) this.put("hit_percent", row, this._hitPercent(row));
    return added;
  }

  _hitPercent(row) {
    let [asked, found] = [0, 0];
    const start = this.at("t", row) - HIT_WINDOW_S;
    for (let i = row; i >= 0 && this.at("t", i) > start; i--) {
      asked += this.at("prefix_queries", i) || 0;
      found += this.at("prefix_hits", i) || 0;
    }
    return asked ? (100 * found) / asked : NaN;
  }
}

/** Nobody overtakes the head of the queue, so all that wait do so for what it waits for. */
function waitingByReason({ waiting, blocked_on: blockedOn = [] }) {
  return Object.fromEntries(
    WAIT_REASONS.map((reason) => [`waiting_${reason}`, waiting.map((n, i) => (blockedOn[i] === reason ? n : 0))]),
  );
}

/** Shares of the wall time; steps that end in a second may have begun before it, so a second can be more than full. */
function timeSplit(history) {
  if (!history.busy_s) return {};
  const stages = STAGES.map((stage) => [`${stage}_percent`, history[`${stage}_s`].map((seconds, i) => share(seconds, history.busy_s[i]))]);
  const named = (i) => STAGES.reduce((sum, stage) => sum + history[`${stage}_s`][i], 0);
  const other = history.busy_s.map((busy, i) => share(Math.max(0, busy - named(i)), busy));
  const idle = history.busy_s.map((busy) => 100 * Math.max(0, 1 - busy));
  return { ...Object.fromEntries(stages), other_percent: other, idle_percent: idle };
}

function share(seconds, busy) {
  return (100 * seconds) / Math.max(1, busy);
}
