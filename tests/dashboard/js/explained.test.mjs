import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { otherRows, settingRows } from "../../../dashboard/static/js/config/settings.js";
import { checkRows, microseconds, timingGroups } from "../../../dashboard/static/js/kernels/tables.js";
import { matching, meanOf, parseExposition, quantileOf, totalOf } from "../../../dashboard/static/js/metrics/exposition.js";
import { points } from "../../../dashboard/static/js/metrics/sparkline.js";
import { at, SECTIONS } from "../../../dashboard/static/js/stats/meaning.js";

const schema = JSON.parse(readFileSync(new URL("../../../observability/schemas/stats.schema.json", import.meta.url), "utf8"));

/** Paths of all numbers and words of `GET /stats`; `recent` has the form of `window`, and `history` is for charts. */
function leaves(definition, path = "") {
  if (path === ".history" || path === ".recent") return [];
  const alternatives = definition.anyOf?.find((each) => each.$ref) ?? definition;
  const name = alternatives.$ref?.split("/").at(-1);
  if (!name) return [path.slice(1)];
  return Object.entries(schema.$defs[name].properties).flatMap(([field, inner]) => leaves(inner, `${path}.${field}`));
}

test("every_number_of_the_statistics_is_explained_and_nothing_else", () => {
  const explained = SECTIONS.flatMap(({ path, rows }) => Object.keys(rows).map((name) => `${path}.${name}`));
  const told = leaves({ $ref: "#/$defs/Stats" }).filter((path) => !["schema", "version", "t", "uptime_s"].includes(path));
  assert.deepEqual(explained.sort(), told.sort());
  for (const { rows } of SECTIONS) for (const [title, meaning] of Object.values(rows)) assert.ok(title && meaning.endsWith("."), title);
});

test("value_at_a_path_that_is_not_there_is_undefined", () => {
  assert.equal(at({ a: { b: 0 } }, "a.b"), 0);
  assert.equal(at({ a: null }, "a.b"), undefined);
});

const EXPOSITION = `# HELP x_total Things, with a \\\\ and a\\nline.
# TYPE x_total counter
x_total{why="a \\"b\\", c",to="d"} 3.0
x_total{why="e",to="f"} 4.0
# HELP l_seconds Latency.
# TYPE l_seconds histogram
l_seconds_bucket{le="0.1",route="/a"} 5.0
l_seconds_bucket{le="1.0",route="/a"} 10.0
l_seconds_bucket{le="+Inf",route="/a"} 10.0
l_seconds_count{route="/a"} 10.0
l_seconds_sum{route="/a"} 2.5
# TYPE g gauge
g NaN
this is not a line of it {
# TYPE x_created gauge
x_created 1.7e9
`;

test("exposition_is_read_into_families_with_labels_help_and_type", () => {
  const families = parseExposition(EXPOSITION);
  assert.deepEqual(families.map(({ name, type, samples }) => [name, type, samples.length]), [["x_total", "counter", 2], ["l_seconds", "histogram", 5], ["g", "gauge", 1], ["this", "unknown", 1]]);
  assert.equal(families[0].help, "Things, with a \\ and a\nline.");
  assert.deepEqual(families[0].samples[0].labels, [["why", 'a "b", c'], ["to", "d"]]);
  assert.equal(totalOf(families[0]), 7);
  assert.equal(totalOf(families[1]), 10);
  assert.equal(meanOf(families[1]), 0.25);
});

test("percentile_of_buckets_is_straight_between_bounds_and_blank_where_there_is_none", () => {
  const [, latency] = parseExposition(EXPOSITION);
  assert.equal(quantileOf(latency, 0.25), 0.05);
  assert.ok(Math.abs(quantileOf(latency, 0.75) - 0.55) < 1e-9);
  const beyond = { type: "histogram", samples: [{ name: "l_bucket", labels: [["le", "1"]], value: 0 }, { name: "l_bucket", labels: [["le", "+Inf"]], value: 3 }] };
  assert.equal(quantileOf(beyond, 0.5), null);
  assert.equal(quantileOf({ type: "histogram", samples: [] }, 0.5), null);
});

test("search_finds_names_and_meanings_that_hold_every_word", () => {
  const families = parseExposition(EXPOSITION);
  assert.deepEqual(matching(families, "LATENCY hist").map((each) => each.name), ["l_seconds"]);
  assert.equal(matching(families, "").length, 4);
});

test("sparkline_of_equal_values_is_flat_and_of_one_value_a_point", () => {
  assert.equal(points([0, 0], 96, 20), "0.0,18.0 96.0,18.0");
  assert.equal(points([5], 96, 20), "0.0,10.0");
  assert.equal(points([0, 10], 96, 20), "0.0,18.0 96.0,2.0");
});

test("setting_says_what_the_engine_made_of_it_only_when_that_differs", () => {
  const flag = (part, name, value, source) => ({ part, flag: name, variable: "V", value, source, default: "d", text: "t", choices: [] });
  const answer = {
    flags: [flag("engine", "--dtype", "auto", "default"), flag("engine", "--threads", 2, "flag"), flag("service", "--timings", true, "environment"), flag("service", "--cors-origin", [], "default")],
    running: { dtype: "Q4_1", threads: 2, timings: "never looked at", load_s: 0.5 },
    service: { otlp: { headers: { hidden: "hidden", num_entries: 2 } }, sampling: { ratio: 1 } },
  };
  assert.deepEqual(settingRows(answer).map(({ value, became }) => [value, became]), [["auto", "Q4_1"], ["2", ""], ["on", ""], ["–", ""]]);
  assert.deepEqual(otherRows(answer), [["service.otlp.headers", "hidden, 2 of them"], ["service.sampling.ratio", "1"], ["running.dtype", "Q4_1"], ["running.load_s", "0.5"]]);
  assert.equal(settingRows({ ...answer, running: null })[0].became, "");
});

test("timings_are_grouped_by_kernel_and_shape_fastest_first", () => {
  const timing = (kernel, backend, median) => ({ kernel, phase: "decode", shape: "s", backend, median_us: median });
  const [group, other] = timingGroups([timing("a", "slow", 30), timing("b", "x", 1), timing("a", "fast", 10)]);
  assert.deepEqual(group.rows.map(({ backend, times, share }) => [backend, times, share]), [["fast", 1, 1 / 3], ["slow", 3, 1]]);
  assert.equal(other.kernel, "b");
  assert.deepEqual([microseconds(3.456), microseconds(45.67), microseconds(456.7), microseconds(4567)], ["3.46 µs", "45.7 µs", "457 µs", "4.57 ms"]);
});

test("worst_check_is_the_one_nearest_to_its_tolerance_and_not_finite_is_worse_than_any", () => {
  const check = (error, tolerance, passed) => ({ kernel: "k", backend: "b", max_rel_error: error, tolerance, passed });
  assert.equal(checkRows([check(0.5, 1, true), check(0.4, 0.5, true)])[0].worst.tolerance, 0.5);
  const [row] = checkRows([check(0.5, 1, true), check(null, 1, false), check(0.9, 1, true)]);
  assert.deepEqual([row.n, row.passed, row.worst.max_rel_error], [3, 2, null]);
});
