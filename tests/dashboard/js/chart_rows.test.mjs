import assert from "node:assert/strict";
import { test } from "node:test";

import { ChartRows, meanAt } from "../../../dashboard/static/js/chart_rows.js";
import { Columns } from "../../../dashboard/static/js/columns.js";

function columnsOf(t, values, capacity = 8) {
  const columns = new Columns(["t", ...Object.keys(values)], capacity);
  columns.append({ t, ...values });
  return columns;
}

test("rows_of_a_view_begin_one_row_before_it", () => {
  const columns = columnsOf([1, 2, 3, 4, 5], { a: [10, 20, 30, 40, 50] });
  const rows = new ChartRows(columns, ["a"], { start: 3, end: 4 }, 1);
  assert.deepEqual([...rows.times], [2, 3, 4]);
  assert.deepEqual([...rows.values[0]], [20, 30, 40]);
});

test("smoothed_rows_are_the_means_that_one_row_alone_has_at_every_place_of_the_ring", () => {
  for (let shift = 0; shift < 8; shift++) {
    const t = Array.from({ length: 8 + shift }, (_, i) => i);
    const columns = columnsOf(t, { a: t.map((i) => (i % 3 ? i * i : null)) });
    const rows = new ChartRows(columns, ["a"], { start: 4 + shift, end: 7 + shift }, 3);
    const alone = [3, 4, 5, 6, 7].map((i) => meanAt(columns, "a", i, 3));
    assert.deepEqual([...rows.values[0]], alone, `after ${shift} overwritten rows`);
  }
});

test("mean_leaves_out_missing_values_and_rows_before_the_first", () => {
  const columns = columnsOf([1, 2, 3], { a: [4, null, 8], b: [null, null, null] });
  assert.deepEqual([0, 1, 2].map((i) => meanAt(columns, "a", i, 5)), [4, 4, 6]);
  assert.deepEqual(meanAt(columns, "b", 2, 5), NaN);
});

test("maximum_is_the_highest_value_or_the_highest_sum_of_a_row", () => {
  const rows = new ChartRows(columnsOf([1, 2], { a: [5, 3], b: [null, 4] }), ["a", "b"], { start: 1, end: 2 }, 1);
  assert.equal(rows.max(false), 5);
  assert.equal(rows.max(true), 7);
  assert.deepEqual(rows.stacks().map((sums) => [...sums]), [[5, 3], [5, 7]]);
});

test("lines_break_where_a_value_is_missing_and_where_nobody_looked", () => {
  const columns = columnsOf([1, 2, 3, 4, 9, 10], { a: [1, null, 3, 4, 5, 6] });
  const rows = new ChartRows(columns, ["a"], { start: 1, end: 10 }, 1);
  assert.deepEqual(rows.runs(rows.values[0]), [[0, 1], [2, 4], [4, 6]]);
  assert.deepEqual(rows.runs(rows.times), [[0, 4], [4, 6]]);
});

test("a_view_without_rows_is_empty", () => {
  for (const columns of [new Columns(["t", "a"], 4), columnsOf([1, 2], { a: [1, 2] })]) {
    const rows = new ChartRows(columns, ["a"], { start: -5, end: -4 }, 5);
    assert.deepEqual([rows.times.length, rows.max(false), rows.max(true), rows.runs(rows.times)], [0, 0, 0, []]);
  }
});
