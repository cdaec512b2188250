import assert from "node:assert/strict";
import { test } from "node:test";

import { Columns } from "../../../dashboard/static/js/columns.js";

const rows = (columns, name) => Array.from({ length: columns.length }, (_, i) => columns.at(name, i));
const range = (from, to) => Array.from({ length: to - from }, (_, i) => from + i);

test("columns_keep_the_newest_rows_in_order", () => {
  const columns = new Columns(["t", "v"], 4);
  for (const t of range(1, 11)) columns.append({ t: [t], v: [t * 10] });
  assert.deepEqual(rows(columns, "t"), [7, 8, 9, 10]);
  assert.deepEqual(rows(columns, "v"), [70, 80, 90, 100]);
  assert.equal(columns.lastTime(), 10);
});

test("columns_append_takes_only_rows_newer_than_the_newest", () => {
  const columns = new Columns(["t", "v"], 8);
  assert.equal(columns.append({ t: [1, 2, 3], v: [1, 2, 3] }), 3);
  assert.equal(columns.append({ t: [2, 3, 4], v: [9, 9, 4] }), 1);
  assert.deepEqual(rows(columns, "v"), [1, 2, 3, 4]);
});

test("columns_of_null_or_missing_values_hold_nan", () => {
  const columns = new Columns(["t", "v", "w"], 2);
  columns.append({ t: [1, 2], v: [null, 0] });
  assert.deepEqual(rows(columns, "v"), [NaN, 0]);
  assert.deepEqual(rows(columns, "w"), [NaN, NaN]);
});

test("columns_agree_with_a_plain_list_for_any_capacity_and_batch", () => {
  for (const capacity of [1, 2, 3, 7, 16]) {
    for (const batch of [1, 2, 5, 20]) {
      const columns = new Columns(["t"], capacity);
      let plain = [];
      for (let t = 0; t < 60; t += batch) {
        const times = range(t, t + batch);
        columns.append({ t: times });
        plain = [...plain, ...times].slice(-capacity);
        assert.deepEqual(rows(columns, "t"), plain, `capacity ${capacity}, batch ${batch}`);
        for (const wanted of [plain[0] - 1, plain[0], plain[0] + 0.4, plain.at(-1), plain.at(-1) + 5]) {
          assert.equal(columns.lowerBound(wanted), plain.filter((value) => value < wanted).length);
        }
      }
    }
  }
});

test("columns_nearest_is_the_closest_row_and_minus_one_without_rows", () => {
  const columns = new Columns(["t"], 4);
  assert.equal(columns.nearest(5), -1);
  columns.append({ t: [10, 11, 20] });
  assert.deepEqual([0, 10.4, 10.6, 15, 16, 99].map((time) => columns.nearest(time)), [0, 0, 1, 1, 2, 2]);
});

test("columns_without_a_time_are_refused", () => {
  assert.throws(() => new Columns(["v"], 4), /need a `t`/);
});
