import assert from "node:assert/strict";
import { test } from "node:test";

import { eventAt } from "../../../../dashboard/static/js/replay/axis.js";
import { diffTraces, differingFields } from "../../../../dashboard/static/js/replay/diff.js";
import { KINDS } from "../../../../dashboard/static/js/replay/lanes.js";
import { ownerColor } from "../../../../dashboard/static/js/replay/palette.js";
import { placeIn, readPlace } from "../../../../dashboard/static/js/replay/place_in_url.js";
import { layTree, neighbour } from "../../../../dashboard/static/js/replay/prefix_tree.js";
import { Session } from "../../../../dashboard/static/js/replay/session.js";
import { axisTicks } from "../../../../dashboard/static/js/replay/ticks.js";
import { whyOf } from "../../../../dashboard/static/js/replay/why.js";
import { anyEvents, event, randomOf, traceOf } from "./made_traces.mjs";

/** A request that is admitted in step 1, preempted in step 2, resumed and finished in step 3. */
function story() {
  const a = { request_id: "a", index: 0 };
  const rows = [
    ["arrived", 0, { ...a, num_prompt_tokens: 6, max_tokens: 4 }],
    ["queued", 0, { ...a, num_waiting: 1 }],
    ["step_started", 1, { num_running: 0, num_waiting: 1 }],
    ["scheduled", 1, { ...a, num_cached_tokens: 0 }],
    ["block_allocated", 1, { ...a, block_id: 0, position: 0 }],
    ["chunk", 1, { ...a, start: 0, num_tokens: 6, num_recomputed: 0 }],
    ["first_token", 1, a],
    ["tokens", 1, { ...a, num_tokens: 1, num_output_tokens: 1 }],
    ["step_finished", 1, { kind: "prefill", num_free_blocks: 11, num_referenced_blocks: 1, num_cached_blocks: 0, blocked_on: "" }],
    ["step_started", 2, { num_running: 1, num_waiting: 1 }],
    ["block_released", 2, { ...a, block_id: 0, ref_count: 0 }],
    ["block_freed", 2, { block_id: 0 }],
    ["preempted", 2, { ...a, num_lost_tokens: 6, num_preemptions: 1 }],
    ["block_allocated", 2, { request_id: "b", index: 0, block_id: 0, position: 0 }],
    ["step_finished", 2, { kind: "decode", num_free_blocks: 11, num_referenced_blocks: 1, num_cached_blocks: 0, blocked_on: "kv_blocks" }],
    ["step_started", 3, { num_running: 1, num_waiting: 1 }],
    ["resumed", 3, { ...a, num_cached_tokens: 0, num_recompute_tokens: 6 }],
    ["chunk", 3, { ...a, start: 0, num_tokens: 7, num_recomputed: 6 }],
    ["tokens", 3, { ...a, num_tokens: 1, num_output_tokens: 2 }],
    ["sequence_finished", 3, { ...a, finish_reason: "stop", num_output_tokens: 2 }],
    ["finished", 3, { ...a, finish_reason: "stop", num_prompt_tokens: 6, num_cached_tokens: 0, num_output_tokens: 2, num_preemptions: 1 }],
    ["step_finished", 3, { kind: "mixed", num_free_blocks: 12, num_referenced_blocks: 0, num_cached_blocks: 0, blocked_on: "" }],
  ];
  return rows.map(([type, step, fields], i) => ({ ...event(type, i + 1, fields), step }));
}

const slices = (lane) => Array.from(lane.starts.trimmed(), (start, k) => [KINDS[lane.kinds.values[k]], start, lane.ends.values[k]]);

test("lane_of_a_preempted_sequence_has_its_slices_and_marks", () => {
  const session = new Session(traceOf(story()));
  const [lane] = session.lanes.lanes;
  assert.deepEqual(slices(lane), [["queue", 0, 2], ["prefill", 2, 8], ["decode", 8, 12], ["preempted", 12, 15], ["prefill", 15, 21]]);
  assert.deepEqual([...lane.marks.trimmed()], [6, 12, 16, 19]);
  assert.equal(lane.isOver, true);
});

test("lanes_of_a_trace_that_grows_are_those_of_the_whole", () => {
  const events = anyEvents(21, 300);
  const whole = new Session(traceOf(events));
  const trace = traceOf(events.slice(0, 1));
  const session = new Session(trace);
  for (const next of events.slice(1)) {
    trace.append(next);
    session.grow({ follow: true });
  }
  assert.deepEqual(session.lanes.lanes.map(slices), whole.lanes.lanes.map(slices));
  assert.equal(session.cursor, 299);
});

test("slices_of_a_lane_never_overlap", () => {
  for (let seed = 1; seed < 20; seed++) {
    for (const lane of new Session(traceOf(anyEvents(seed, 300))).lanes.lanes) {
      let last = 0;
      for (const [, start, end] of slices(lane)) {
        assert.ok(start >= last && end > start);
        last = end;
      }
    }
  }
});

test("why_a_sequence_was_preempted_names_the_pool_before_and_who_took_the_block", () => {
  const session = new Session(traceOf(story()));
  const why = whyOf(session, 12).join(" ");
  assert.match(why, /newest of the lowest priority/);
  assert.match(why, /6 computed tokens are lost/);
  assert.match(why, /11 blocks were free and 0 only cached/);
  assert.match(why, /next block went to b \(seq 14\)/);
  assert.match(whyOf(session, 16).join(" "), /mostly for free KV blocks/);
});

test("next_and_previous_jumps_find_every_place_once", () => {
  const session = new Session(traceOf(anyEvents(31, 400)));
  for (const [kind, type] of [["preemption", "preempted"], ["eviction", "block_evicted"], ["copy", "block_copied"]]) {
    const expected = Array.from({ length: 400 }, (_, i) => i).filter((i) => session.trace.typeName(i) === type);
    const found = [];
    session.cursor = 0;
    for (let i = session.next(kind); i >= 0; i = session.next(kind)) found.push((session.cursor = i));
    assert.deepEqual(found, expected.filter((i) => i > 0));
    const back = [];
    session.cursor = 399;
    for (let i = session.next(kind, -1); i >= 0; i = session.next(kind, -1)) back.unshift((session.cursor = i));
    assert.deepEqual(back, expected.filter((i) => i < 399));
  }
});

test("both_axes_ascend_and_lead_back_to_their_events", () => {
  for (const name of ["seconds", "steps"]) {
    const session = new Session(traceOf(anyEvents(41, 300)), { axis: name });
    for (let i = 1; i < 300; i++) assert.ok(session.axis.at(i) >= session.axis.at(i - 1));
    for (let i = 0; i < 300; i++) {
      const found = eventAt(session.axis, 300, session.axis.at(i));
      assert.equal(session.axis.at(found), session.axis.at(i));
    }
  }
});

test("view_stays_within_the_trace_however_it_is_moved", () => {
  const session = new Session(traceOf(anyEvents(43, 200)));
  const random = randomOf(5);
  const whole = session.whole();
  for (let k = 0; k < 500; k++) {
    if (random() < 0.5) session.zoom(random() * 3, random() * whole.end);
    else session.pan(random() * 4 - 2);
    assert.ok(session.view.start >= whole.start - 1e-9 && session.view.end <= whole.end + 1e-9 && session.view.end > session.view.start);
  }
});

test("prefix_tree_keeps_the_first_child_in_its_parents_row", () => {
  const publish = (seq, block, parent) => event("block_published", seq, { block_id: block, parent_block_id: parent, request_id: "a", index: 0, block_hash: "", parent_hash: "" });
  const session = new Session(traceOf([publish(1, 0, -1), publish(2, 1, 0), publish(3, 2, 1), publish(4, 3, 0), publish(5, 5, -1)]));
  session.cursor = 4;
  const places = Object.fromEntries(layTree(session.state).nodes.map(({ id, depth, row }) => [id, [depth, row]]));
  assert.deepEqual(places, { 0: [0, 0], 1: [1, 0], 2: [2, 0], 3: [1, 1], 5: [0, 2] });
});

test("arrow_keys_lead_through_the_prefix_tree", () => {
  const places = { 0: [0, 0, -1], 1: [1, 0, 0], 2: [2, 0, 0], 3: [1, 1, 0], 4: [2, 1, 1], 5: [0, 2, -1] };
  const nodes = Object.entries(places).map(([id, [depth, row, parentRow]]) => ({ id: Number(id), depth, row, parentRow }));
  const tree = { nodes, rows: 3, depth: 3 };
  const way = (from, ...keys) => keys.map((key) => (from = neighbour(tree, from, key)));
  assert.deepEqual(way(0, "ArrowRight", "ArrowRight", "ArrowRight"), [1, 2, 2]);
  assert.deepEqual(way(2, "ArrowDown", "ArrowDown", "ArrowDown", "ArrowUp"), [4, 5, 5, 3]);
  assert.deepEqual(way(4, "ArrowLeft", "ArrowLeft", "ArrowLeft"), [3, 0, 0]);
  assert.deepEqual(way(4, "Home", "End"), [0, 5]);
  assert.deepEqual(way(9, "ArrowDown"), [0], "a block that has left the tree");
  assert.equal(neighbour({ nodes: [], rows: 0, depth: 1 }, -1, "End"), -1);
});

test("first_difference_leaves_times_and_names_out", () => {
  const a = traceOf(story());
  const renamed = story().map((each) => ({ ...each, t: each.t * 3, ...(each.request_id ? { request_id: `x${each.request_id}` } : {}) }));
  assert.equal(diffTraces(a, traceOf(renamed)).place, -1);
  const changed = story();
  changed[14] = { ...changed[14], blocked_on: "token_budget" };
  const b = traceOf(changed);
  assert.equal(diffTraces(a, b).place, 14);
  assert.deepEqual(differingFields(a, b, 14), ["blocked_on"]);
  assert.equal(diffTraces(a, traceOf(story().slice(0, 9))).place, 9);
  const other = traceOf(story(), { header: { ...a.header, num_blocks: 13 } });
  assert.deepEqual(diffTraces(a, other).settings, [["num_blocks", 12, 13]]);
});

test("place_in_the_address_leads_back_and_nonsense_is_left_out", () => {
  const session = new Session(traceOf(anyEvents(51, 50)), { axis: "steps" });
  session.seek(30);
  const place = readPlace(placeIn(session));
  assert.deepEqual(place, { seq: 31, life: "made-1", axis: "steps", traceId: "", requestId: "" });
  const nonsense = readPlace(new URLSearchParams("seq=-3&axis=<b>&trace_id=../x&life=a b"));
  assert.deepEqual(nonsense, { seq: null, life: "", axis: "", traceId: "", requestId: "" });
  assert.equal(readPlace(new URLSearchParams("trace_id=0af7651916cd43dd8448eb211c80319c")).traceId.length, 32);
});

test("first_step_of_a_request_is_where_it_is_admitted", () => {
  const session = new Session(traceOf(story()));
  assert.equal(session.firstStepOf(session.trace.findRequest("a")), 3);
  assert.equal(session.trace.findRequest("nobody"), -1);
});

test("ticks_are_round_and_about_as_many_as_asked_for", () => {
  const texts = (...args) => axisTicks(...args).map(({ text }) => text);
  assert.deepEqual(texts("seconds", 0, 1, 4), ["0 ms", "500 ms", "1000 ms"]);
  assert.deepEqual(texts("steps", 3.5, 8, 8), ["4", "5", "6", "7", "8"]);
  for (const span of [1e-5, 3e-3, 0.2, 7, 4000]) {
    const ticks = axisTicks("seconds", 0, span, 8);
    assert.ok(ticks.length >= 3 && ticks.length <= 9, `${span}: ${ticks.length}`);
    assert.equal(new Set(ticks.map(({ text }) => text)).size, ticks.length, `${span}: ${ticks.map(({ text }) => text)}`);
  }
});

test("neighbouring_requests_have_colours_of_their_own", () => {
  const colors = Array.from({ length: 33 }, (_, i) => ownerColor(i, false));
  assert.equal(new Set(colors).size, 33);
});
