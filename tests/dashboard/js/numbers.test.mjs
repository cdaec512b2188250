import assert from "node:assert/strict";
import { test } from "node:test";

import { count, durationText, number, percent } from "../../../dashboard/static/js/format.js";
import { timeTicks, valueTicks } from "../../../dashboard/static/js/scale.js";
import { tileTexts } from "../../../dashboard/static/js/live/tiles.js";

test("missing_numbers_are_a_dash_never_zero_or_nan", () => {
  for (const missing of [null, undefined, NaN]) {
    assert.deepEqual([number(missing), count(missing), durationText(missing), percent(missing)], ["–", "–", "–", "–"]);
  }
});

test("numbers_show_about_three_digits", () => {
  assert.deepEqual([0, 0.04, 1.5, 12.34, 99.96, 1234.5].map(number), ["0", "0.04", "1.5", "12.3", "100", "1,235"]);
  assert.deepEqual([7, 12_345, 1_240_000, 3_500_000_000].map(count), ["7", "12,345", "1.24 M", "3.5 G"]);
  assert.deepEqual([0.42, 12.34, 431.6, 999.4, 999.6, 12_345].map(durationText), [
    "0.42 ms", "12.3 ms", "432 ms", "999 ms", "1 s", "12.3 s",
  ]);
  assert.deepEqual([0, 0.004, 0.5, 1].map(percent), ["0", "0.4", "50", "100"]);
});

test("value_ticks_are_round_and_reach_the_maximum", () => {
  assert.deepEqual(valueTicks(0), [0]);
  assert.deepEqual(valueTicks(512), [0, 200, 400, 600]);
  assert.deepEqual(valueTicks(1), [0, 0.25, 0.5, 0.75, 1]);
  for (const max of [0.003, 0.7, 3, 17, 99, 101, 12_345]) {
    const ticks = valueTicks(max);
    assert.ok(ticks.at(-1) >= max * 0.999 && ticks.at(-2) < max, `${max}: ${ticks}`);
    assert.ok(ticks.length <= 6);
  }
});

test("time_ticks_are_at_round_times_within_the_range", () => {
  assert.deepEqual(timeTicks(100, 220, 4), [120, 150, 180, 210].slice(0, 4));
  assert.ok(timeTicks(0, 3600, 7).every((t) => t % 600 === 0));
});

const QUIET = { n: 0, p50_s: null, p90_s: null, p99_s: null };

function stats(changes = {}) {
  return {
    recent: { decode_tokens_per_s: 0, prefill_tokens_per_s: 0 },
    window: { prefix_hit_ratio: null, preemptions: 0, recomputed_tokens: 0, ttft: QUIET, itl: QUIET },
    gauges: { running: 0, waiting: 0, blocked_on: "", oldest_waiting_s: 0, ...changes.gauges },
    counters: { generated_tokens: 0, prompt_tokens_computed: 0, prompt_tokens_recomputed: 0, prefix_hit_tokens: 0, preemptions: 0 },
    engine: { max_num_seqs: 8 },
    ...changes.top,
  };
}

test("tiles_of_an_idle_engine_hold_no_made_up_number", () => {
  const texts = tileTexts(stats());
  assert.deepEqual(
    [texts.output, texts["ttft-p50"], texts["itl-p99"], texts.hit, texts.hitUnit, texts.waitingNote, texts.ttftNote],
    ["0", "–", "–", "–", "", "nothing waits", "no requests in 60 s"],
  );
});

test("tiles_say_what_waits_and_when_a_p99_has_too_few_samples", () => {
  const waiting = { waiting: 3, blocked_on: "kv_blocks", oldest_waiting_s: 1.25 };
  const texts = tileTexts(stats({ gauges: waiting }));
  assert.equal(texts.waitingNote, "for KV blocks · oldest 1.25 s");
  const ttft = { n: 17, p50_s: 0.25, p90_s: 0.4, p99_s: null };
  const window = { prefix_hit_ratio: 0.375, preemptions: 0, recomputed_tokens: 0, ttft, itl: QUIET };
  const busy = tileTexts(stats({ top: { window } }));
  assert.deepEqual([busy["ttft-p50"], busy["ttft-p50-unit"], busy["ttft-p99"]], ["250", "ms", "–"]);
  assert.equal(busy.ttftNote, "17 requests in 60 s, p99 needs 100");
  assert.deepEqual([busy.hit, busy.hitUnit], ["38", "%"]);
});
