import assert from "node:assert/strict";
import { test } from "node:test";
import { joined, partsOf } from "../../../../dashboard/static/js/live/steps.js";
import { View } from "../../../../dashboard/static/js/live/view.js";

const read = (text) => View.from(new URLSearchParams(text));

test("view_is_read_from_the_url_as_it_was_written_there", () => {
  for (const view of [new View(), new View({ span: 900 }), new View({ heldAt: 1000 }), new View({ span: 60, heldAt: 7, range: { start: 5, end: 20 } })]) {
    assert.deepEqual({ ...View.from(view.params()) }, { ...view });
  }
});

test("view_takes_what_it_can_not_read_for_the_default", () => {
  assert.deepEqual({ ...read("range=7&at=soon&from=9&to=3") }, { ...new View() });
  assert.deepEqual({ ...read("from=3") }, { ...new View() });
});

test("view_follows_holds_still_and_shows_a_range", () => {
  const live = new View({ span: 60 });
  assert.deepEqual([live.mode, live.window(1000), live.text(5)], ["live", { start: 940, end: 1000 }, "Live"]);
  const paused = live.toggled(1000);
  assert.deepEqual([paused.mode, paused.window(1010), paused.text(10), paused.text(0)], ["paused", { start: 940, end: 1000 }, "Paused · 10 s new", "Paused"]);
  const ranged = paused.ranged(970, 950);
  assert.deepEqual([ranged.mode, ranged.window(1010)], ["range", { start: 950, end: 970 }]);
  assert.equal(ranged.toggled(1010).mode, "live");
});

test("range_is_never_too_short_to_hold_a_row_and_zoom_keeps_the_moment_where_it_is", () => {
  const { range } = new View().ranged(100, 100.1);
  assert.ok(range.end - range.start >= 5);
  const closer = new View({ range: { start: 0, end: 100 } }).zoomed(0.5, 20, 0);
  assert.deepEqual(closer.range, { start: 10, end: 60 });
  assert.deepEqual(closer.zoomed(2, 20, 0).range, { start: 0, end: 100 });
});

const steps = (from, to) => Array.from({ length: to - from + 1 }, (_, i) => ({ step: from + i }));

test("steps_are_kept_up_to_a_bound_and_begin_anew_with_a_restarted_engine", () => {
  assert.deepEqual(joined(steps(1, 3), steps(4, 5)).map(({ step }) => step), [1, 2, 3, 4, 5]);
  assert.deepEqual(joined(steps(100, 103), steps(1, 2)).map(({ step }) => step), [1, 2]);
  assert.equal(joined(steps(1, 240), steps(241, 300)).length, 240);
  assert.deepEqual(partsOf({ num_decode_tokens: 4, num_prefill_tokens: 30, num_recomputed_tokens: 10 }), { decode: 4, prefill: 20, recompute: 10 });
});
