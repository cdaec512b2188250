import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { History } from "../../../../dashboard/static/js/history.js";
import { Alerts, RULES } from "../../../../dashboard/static/js/live/alerts.js";

const YAML = readFileSync(new URL("../../../../observability/prometheus/alerts.yml", import.meta.url), "utf8");

/** The rules of the file, by name. */
const WRITTEN = new Map(
  YAML.split("- alert: ").slice(1).map((text) => {
    const wait = /^\s+for: (\d+)([smh])$/m.exec(text);
    const seconds = wait ? Number(wait[1]) * { s: 1, m: 60, h: 3600 }[wait[2]] : 0;
    return [text.split("\n")[0], { for_s: seconds, severity: /severity: (\w+)/.exec(text)[1], expr: text.slice(text.indexOf("expr:"), text.indexOf("labels:")) }];
  }),
);

function frame({ state = "ready", restarts = 0, heartbeat = 0.2, inFlight = 0, oldest = 0, usage = 0.1, lost = 0, dropped = {} } = {}) {
  return {
    connected: true,
    stats: {
      engine: { state, restarts, heartbeat_age_s: heartbeat },
      gauges: { in_flight: inFlight, oldest_waiting_s: oldest, kv: { usage_ratio: usage } },
      counters: { events_dropped: lost },
      tracing: { spans_dropped: dropped },
    },
  };
}

function historyOf(n, row) {
  const history = new History();
  const columns = { t: Array.from({ length: n }, (_, i) => 1000 + i), waiting: new Array(n).fill(0) };
  for (const [name, value] of Object.entries(row)) columns[name] = new Array(n).fill(value);
  history.append(columns);
  return history;
}

const QUIET = historyOf(300, { generated_tokens: 5, prefill_tokens: 5, preemptions: 0, recomputed_tokens: 0 });

test("rules_are_those_of_the_file_with_the_same_patience_severity_and_limits", () => {
  for (const { name, severity, for_s: wait } of RULES) {
    const written = WRITTEN.get(name);
    assert.ok(written, `${name} is not in alerts.yml`);
    assert.deepEqual([name, severity, wait], [name, written.severity, written.for_s]);
  }
  const limits = { PellucidHeartbeatOld: "> 10", PellucidQueueOld: "> 30", PellucidKvPressure: "> 0.9", PellucidRecomputeWaste: "> 0.1", PellucidEngineRestarting: "[15m]) > 1" };
  for (const [name, limit] of Object.entries(limits)) assert.ok(WRITTEN.get(name).expr.includes(limit), name);
  assert.deepEqual([WRITTEN.get("PellucidScrapeDown").for_s, WRITTEN.get("PellucidScrapeDown").severity], [30, "page"]);
});

const CASES = {
  PellucidEngineDown: [frame({ state: "down" }), QUIET],
  PellucidEngineStalled: [frame({ inFlight: 3 }), historyOf(90, { generated_tokens: 0, prefill_tokens: 0 })],
  PellucidHeartbeatOld: [frame({ heartbeat: 12 }), QUIET],
  PellucidQueueOld: [frame({ inFlight: 1, oldest: 31 }), QUIET],
  PellucidKvPressure: [frame({ usage: 0.95 }), historyOf(300, { generated_tokens: 5, preemptions: 1 })],
  PellucidRecomputeWaste: [frame(), historyOf(300, { generated_tokens: 4, prefill_tokens: 4, recomputed_tokens: 2 })],
};

for (const [name, [sick, history]] of Object.entries(CASES)) {
  test(`alert_${name}_is_pending_until_it_has_held_long_enough_and_gone_with_its_cause`, () => {
    const alerts = new Alerts(history);
    const wait = WRITTEN.get(name).for_s;
    assert.deepEqual(alerts.at(sick, 0).map((each) => [each.name, each.isFiring]), [[name, false]]);
    assert.equal(alerts.at(sick, wait - 1)[0].isFiring, false);
    assert.equal(alerts.at(sick, wait)[0].isFiring, true);
    assert.deepEqual(new Alerts(QUIET).at(frame(), 0), []);
    if (history === QUIET) {
      assert.deepEqual(alerts.at(frame(), wait + 1), []);
      assert.equal(alerts.at(sick, wait + 2)[0].isFiring, false, "the patience begins anew");
    }
  });
}

test("counters_that_grew_fire_at_once_and_what_was_before_the_page_does_not", () => {
  const alerts = new Alerts(QUIET);
  assert.deepEqual(alerts.at(frame({ lost: 9, restarts: 4, dropped: { queue_full: 3 } }), 0), []);
  const now = alerts.at(frame({ lost: 10, restarts: 6, dropped: { queue_full: 3, shutdown: 1 } }), 10);
  assert.deepEqual(now.map(({ name, isFiring }) => [name, isFiring]), [["PellucidEngineRestarting", true], ["PellucidEventsDropped", true], ["PellucidSpansDropped", true]]);
  assert.deepEqual(alerts.at(frame({ lost: 10, restarts: 6, dropped: { queue_full: 4 } }), 1000), []);
});

test("service_that_does_not_answer_is_a_scrape_that_fails", () => {
  const alerts = new Alerts(QUIET);
  assert.equal(alerts.at({ connected: false }, 0)[0].isFiring, false);
  assert.deepEqual(alerts.at({ connected: false }, 30).map(({ name, isFiring }) => [name, isFiring]), [["PellucidScrapeDown", true]]);
});
