import assert from "node:assert/strict";
import { test } from "node:test";
import { sharesOf } from "../../../../dashboard/static/js/requests/causes.js";
import { rank, RequestRows, visibleRows } from "../../../../dashboard/static/js/requests/rows.js";
import { decades } from "../../../../dashboard/static/js/requests/scatter.js";

function row(id, fields = {}) {
  return {
    request_id: id, trace_id: `trace-${id}`, route: "/v1/chat/completions", model: "m", state: "finished", phase: "ended",
    waits_for: "", finish_reason: "stop", error_type: "", num_preemptions: 0, ttft_s: null, e2e_s: null, age_s: 0, ...fields,
  };
}

const ids = (rows) => rows.map((each) => each.request_id);
const ALL = { show: "all", query: "", sort: "" };

test("rows_that_ended_are_kept_newest_first_up_to_the_capacity", () => {
  const rows = new RequestRows(3);
  rows.take({ t: 1, in_flight: [row("e", { phase: "decode" })], recent: [row("b"), row("a")] });
  rows.take({ t: 2, in_flight: [], recent: [row("e"), row("d"), row("c"), row("b")] });
  assert.deepEqual(ids(rows.ended), ["e", "d", "c"]);
  assert.deepEqual(ids(rows.inFlight), []);
  assert.equal(rows.find("a"), null);
  assert.equal(rows.ofTrace("trace-d").request_id, "d");
  assert.equal(rows.ofTrace("trace-zzz"), null);
});

test("day_of_requests_takes_no_more_room_than_the_capacity", () => {
  const rows = new RequestRows(200);
  for (let tick = 0; tick < 86_400; tick++) {
    rows.take({ t: tick, in_flight: [], recent: [row(`r${tick}`), row(`r${tick - 1}`)] });
  }
  assert.equal(rows.ended.length, 200);
  assert.equal(rows.ended[0].request_id, "r86399");
});

test("table_shows_what_was_asked_for_and_sorts_missing_values_last_in_both_directions", () => {
  const rows = [
    row("a", { ttft_s: 0.2 }), row("b", { state: "failed", error_type: "internal_error" }), row("c", { ttft_s: 0.1, num_preemptions: 2 }),
    row("d", { phase: "queue", state: "waiting", waits_for: "kv_blocks" }),
  ];
  assert.deepEqual(ids(visibleRows(rows, { ...ALL, sort: "ttft_s" })), ["c", "a", "b", "d"]);
  assert.deepEqual(ids(visibleRows(rows, { ...ALL, sort: "-ttft_s" })), ["a", "c", "b", "d"]);
  assert.deepEqual(ids(visibleRows(rows, { ...ALL, show: "in_flight" })), ["d"]);
  assert.deepEqual(ids(visibleRows(rows, { ...ALL, show: "problems" })), ["b"]);
  assert.deepEqual(ids(visibleRows(rows, { ...ALL, show: "preempted" })), ["c"]);
  assert.deepEqual(ids(visibleRows(rows, { ...ALL, query: "KV_blocks waiting" })), ["d"]);
  assert.deepEqual(ids(visibleRows(rows, { ...ALL, query: "trace-c" })), ["c"]);
});

test("rank_needs_ten_samples_and_counts_those_not_above", () => {
  const values = Array.from({ length: 20 }, (_, i) => i + 1);
  assert.deepEqual(rank(10, [...values, null]), { percentile: 50, n: 20 });
  assert.deepEqual(rank(20, values), { percentile: 100, n: 20 });
  assert.equal(rank(10, values.slice(0, 9)), null);
  assert.equal(rank(null, values), null);
});

test("printed_shares_add_up_to_a_hundred_whatever_the_parts", () => {
  for (let seed = 1; seed < 200; seed++) {
    const causes = { tokenize: Math.abs(Math.sin(seed)), prefill: Math.abs(Math.cos(seed * 3)), decode: (seed % 7) / 3, host: 1 / 3, send: 1e-9 };
    const parts = sharesOf(causes);
    assert.equal(Math.round(parts.reduce((sum, part) => sum + part.percent * 10, 0)), 1000, `seed ${seed}`);
    assert.ok(!parts.some((part) => part.cause.key === "send"));
  }
  assert.deepEqual(sharesOf({ tokenize: 0 }), []);
  assert.equal(sharesOf({ a_cause_of_tomorrow: 1 })[0].cause.label, "a_cause_of_tomorrow");
});

test("axis_of_the_scatter_holds_all_values_in_powers_of_ten", () => {
  assert.deepEqual(decades(0.02, 3), [0.01, 0.1, 1, 10]);
  assert.deepEqual(decades(1, 1), [1, 10]);
});
