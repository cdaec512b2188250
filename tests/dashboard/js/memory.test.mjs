/** A day of the feed at one frame a second, through everything that keeps something. */

import assert from "node:assert/strict";
import { test } from "node:test";
import v8 from "node:v8";
import vm from "node:vm";
import { History, HISTORY_ROWS } from "../../../dashboard/static/js/history.js";
import { Alerts } from "../../../dashboard/static/js/live/alerts.js";
import { joined } from "../../../dashboard/static/js/live/steps.js";

const DAY_S = 86_400;

v8.setFlagsFromString("--expose-gc");
const collect = vm.runInNewContext("gc");

function frame(t) {
  return {
    connected: true,
    stats: {
      engine: { state: "ready", restarts: 0, heartbeat_age_s: 0.1 },
      gauges: { in_flight: 3, oldest_waiting_s: t % 60, kv: { usage_ratio: (t % 100) / 100 } },
      counters: { events_dropped: 0 },
      tracing: { spans_dropped: {} },
      history: {
        t: [t], generated_tokens: [50], prefill_tokens: [90], running: [4], waiting: [t % 5], blocked_on: [t % 2 ? "kv_blocks" : "next_step"],
        kv_referenced: [10], kv_cached: [20], kv_free: [30], batch_prefill: [1.5], batch_decode: [3], ttft_p50_ms: [80], ttft_p90_ms: [null],
        ttft_p99_ms: [null], itl_p50_ms: [20], itl_p99_ms: [30], preemptions: [0], kv_evictions: [1], recomputed_tokens: [0],
        prefix_queries: [100], prefix_hits: [t % 100], busy_s: [0.9], schedule_s: [0.01], execute_s: [0.8], sample_s: [0.03], update_s: [0.01],
      },
    },
  };
}

test("day_of_the_feed_takes_no_more_memory_than_an_hour_of_it", () => {
  const history = new History();
  const alerts = new Alerts(history);
  let steps = [];
  let afterAnHour = 0;
  for (let tick = 0; tick < DAY_S; tick++) {
    const { stats } = frame(tick);
    history.append(stats.history);
    alerts.at({ connected: true, stats }, tick);
    steps = joined(steps, [{ step: 2 * tick }, { step: 2 * tick + 1 }]);
    if (tick === HISTORY_ROWS) {
      collect();
      afterAnHour = process.memoryUsage().heapUsed + process.memoryUsage().arrayBuffers;
    }
  }
  collect();
  const grown = process.memoryUsage().heapUsed + process.memoryUsage().arrayBuffers - afterAnHour;
  assert.ok(grown < 1 << 20, `grew by ${grown} bytes after the first hour`);
  assert.equal(history.length, HISTORY_ROWS);
  assert.equal(history.at("t", HISTORY_ROWS - 1), DAY_S - 1);
  assert.equal(steps.length, 240);
});
