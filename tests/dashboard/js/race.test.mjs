import assert from "node:assert/strict";
import { test } from "node:test";

import { RaceState } from "../../../dashboard/static/js/playground/race_state.js";

function round(mode, { tokens, wallMs, error = "" }) {
  const lanes = tokens.flatMap((count, lane) => [
    { type: "start", lane },
    { type: "text", lane, text: "a" },
    { type: "text", lane, text: "b" },
    { type: "end", lane, error: lane === 0 ? error : "", ttft_ms: 10 * (lane + 1), total_ms: 100, tokens: count, cached_tokens: 0 },
  ]);
  return [{ type: "round", mode, lanes: tokens.length }, ...lanes, { type: "round_end", wall_ms: wallMs }];
}

const after = (...rounds) => {
  const state = new RaceState();
  for (const event of rounds.flat()) state.take(event);
  return state;
};

test("race_totals_are_tokens_over_the_wall_time_of_the_round", () => {
  const state = after(round("sequential", { tokens: [10, 20], wallMs: 1000 }));
  assert.deepEqual(RaceState.totals(state.rounds[0]), { tokens: 30, tokensPerSecond: 30, meanTtftMs: 15, failed: 0 });
  assert.equal(state.rounds[0].lanes[1].text, "ab");
  assert.equal(state.speedUp(), null);
});

test("race_speed_up_compares_rates_so_answers_of_other_lengths_do_not_mislead", () => {
  const state = after(round("sequential", { tokens: [10, 20], wallMs: 1000 }), round("concurrent", { tokens: [40, 20], wallMs: 1000 }));
  assert.equal(state.speedUp(), 2);
});

test("race_with_a_failed_lane_makes_no_claim", () => {
  const state = after(round("sequential", { tokens: [10, 20], wallMs: 1000 }), round("concurrent", { tokens: [0, 20], wallMs: 500, error: "HTTP 429" }));
  assert.equal(state.speedUp(), null);
  assert.equal(RaceState.totals(state.rounds[1]).failed, 1);
  assert.equal(state.rounds[1].lanes[0].error, "HTTP 429");
});

test("race_that_still_runs_has_no_rate", () => {
  const state = after(round("sequential", { tokens: [10], wallMs: 1000 }).slice(0, -1));
  assert.equal(RaceState.totals(state.rounds[0]).tokensPerSecond, null);
});
