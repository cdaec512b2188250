import assert from "node:assert/strict";
import { test } from "node:test";
import { History } from "../../../dashboard/static/js/history.js";

test("history_puts_those_that_wait_under_what_the_head_waits_for", () => {
  const history = new History();
  history.append({ t: [1, 2, 3], waiting: [2, 3, 0], blocked_on: ["kv_blocks", "max_num_seqs", ""] });
  const rows = [0, 1, 2].map((i) => ["waiting_kv_blocks", "waiting_max_num_seqs", "waiting_next_step"].map((name) => history.at(name, i)));
  assert.deepEqual(rows, [[2, 0, 0], [0, 3, 0], [0, 0, 0]]);
});

test("history_splits_each_second_of_the_engine_into_a_hundred_percent", () => {
  const history = new History();
  history.append({ t: [1, 2], waiting: [0, 0], busy_s: [0.5, 1.25], schedule_s: [0.05, 0.25], execute_s: [0.4, 0.5], sample_s: [0, 0.25], update_s: [0, 0.25] });
  const names = ["execute", "sample", "schedule", "update", "other", "idle"].map((name) => `${name}_percent`);
  const split = (i) => names.map((name) => Math.round(history.at(name, i)));
  assert.deepEqual(split(0), [40, 0, 5, 0, 5, 50]);
  assert.deepEqual(split(1), [40, 20, 20, 20, 0, 0]);
});

test("history_tells_prefix_hits_over_a_minute_and_nothing_where_nobody_asked", () => {
  const history = new History();
  history.append({ t: [0, 10, 65, 200], waiting: [0, 0, 0, 0], prefix_queries: [100, 100, 100, 0], prefix_hits: [0, 50, 100, 0] });
  assert.deepEqual([0, 1, 2].map((i) => history.at("hit_percent", i)), [0, 25, 75]);
  assert.ok(Number.isNaN(history.at("hit_percent", 3)));
});

test("history_of_an_older_service_without_the_newer_columns_still_draws", () => {
  const history = new History();
  assert.equal(history.append({ t: [1], waiting: [1], running: [2] }), 1);
  assert.equal(history.at("running", 0), 2);
  assert.ok(Number.isNaN(history.at("idle_percent", 0)));
});
