import assert from "node:assert/strict";
import { test } from "node:test";

import { Replay } from "../../../../dashboard/static/js/replay/replay.js";
import { State } from "../../../../dashboard/static/js/replay/state.js";
import { anyEvents, randomOf, traceOf } from "./made_traces.mjs";

/** All that a state says, as plain data. */
function told(state) {
  return structuredClone({
    position: state.position, inStep: state.inStep, counts: state.counts, requests: [...state.requests],
    blocks: state.blocks.map((block) => ({ ...block })), choices: [...state.choices].map((choice) => choice && { ...choice }),
  });
}

function fromZero(trace, position) {
  const state = new State(trace);
  state.advance(position);
  return told(state);
}

test("seeking_to_any_event_by_checkpoints_equals_replaying_from_zero", () => {
  for (let seed = 1; seed <= 12; seed++) {
    const trace = traceOf(anyEvents(seed, 400));
    const random = randomOf(1000 + seed);
    for (const interval of [1, 7, 64, 1000]) {
      const replay = new Replay(trace, { interval });
      for (let k = 0; k < 25; k++) {
        const position = Math.floor(random() * 401);
        assert.deepEqual(told(replay.stateAfter(position)), fromZero(trace, position), `seed ${seed}, interval ${interval}, position ${position}`);
      }
    }
  }
});

test("trace_that_grows_keeps_every_place_reachable", () => {
  const events = anyEvents(5, 300);
  const trace = traceOf(events.slice(0, 10));
  const replay = new Replay(trace, { interval: 32 });
  for (const next of events.slice(10)) {
    trace.append(next);
    replay.extend();
  }
  assert.equal(replay.numCheckpoints, 1 + Math.floor(300 / 32));
  for (const position of [0, 1, 31, 32, 33, 150, 299, 300]) assert.deepEqual(told(replay.stateAfter(position)), fromZero(trace, position));
});

test("going_back_and_forth_leaves_no_mark_on_checkpoints", () => {
  const trace = traceOf(anyEvents(9, 200));
  const replay = new Replay(trace, { interval: 50 });
  const first = told(replay.stateAfter(120));
  for (const position of [0, 200, 121, 119, 50, 51, 49]) replay.stateAfter(position);
  assert.deepEqual(told(replay.stateAfter(120)), first);
});

test("checkpoints_of_a_large_pool_are_further_apart", () => {
  const trace = traceOf(anyEvents(3, 50));
  const small = new Replay(trace);
  const header = { ...trace.header, num_blocks: 1 << 20 };
  const large = new Replay(traceOf(anyEvents(3, 50), { header }));
  assert.equal(small.interval, 512);
  assert.ok(large.numCheckpoints <= 6);
});

test("counts_are_those_of_the_blocks_at_every_event", () => {
  const trace = traceOf(anyEvents(11, 500));
  const state = new State(trace);
  for (let position = 0; position <= 500; position++) {
    state.advance(position);
    const counted = [0, 0, 0, 0];
    for (const { place } of state.blocks) counted[place]++;
    assert.deepEqual(Object.values(state.counts), counted);
  }
});
