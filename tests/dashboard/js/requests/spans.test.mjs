import assert from "node:assert/strict";
import { test } from "node:test";
import { spansOf } from "../../../../dashboard/static/js/requests/spans.js";

/** A request that is preempted after its first tokens: queued 1 s, prefill 0.5 s, preempted from 2.5 to 3, again 0.25 s. */
function preempted(fields = {}) {
  return {
    arrival: 1000, phase: "ended", phase_s: 0, waits_for: "", num_prompt_tokens: 40,
    stamps: { encoded_s: 0.1, first_scheduled_s: 1.2, first_token_s: 2, last_token_s: 5, sent_first_s: 2, sent_last_s: 5.25, ended_s: 5.125 },
    waits: [{ start_s: 0.2, end_s: 1.2, cause: "queued" }, { start_s: 2.5, end_s: 3, cause: "preempted" }],
    chunks: [
      { at_s: 1.2, step: 7, index: 0, start: 16, num_tokens: 24, num_recomputed: 0 },
      { at_s: 3, step: 12, index: 0, start: 16, num_tokens: 25, num_recomputed: 24 },
    ],
    attribution: { wall_s: 5.25 },
    ...fields,
  };
}

const step = (number, started, t, prefill) => ({ step: number, started, t, num_prefill_tokens: prefill });
const STEPS = { monotonic_origin: 900, steps: [step(7, 101.2, 101.5, 24), step(12, 103, 103.25, 35), step(13, 103.25, 103.5, 0), step(14, 103.5, 104, 64)] };
const told = (spans) => spans.map(({ kind, start, end }) => [kind, Number(start.toFixed(6)), Number(end.toFixed(6))]);

test("waterfall_without_steps_ends_each_chunk_where_the_next_thing_begins", () => {
  assert.deepEqual(told(spansOf(preempted())), [
    ["tokenize", 0, 0.1], ["inbox", 0.1, 0.2], ["queue", 0.2, 1.2], ["prefill", 1.2, 2], ["decode", 2, 2.5],
    ["preempted", 2.5, 3], ["recompute", 3, 5.125], ["send", 5.125, 5.25],
  ]);
});

test("waterfall_with_steps_knows_when_chunks_ended_and_whose_prefill_made_decode_longer", () => {
  const spans = spansOf(preempted(), STEPS);
  assert.deepEqual(told(spans), [
    ["tokenize", 0, 0.1], ["inbox", 0.1, 0.2], ["queue", 0.2, 1.2], ["prefill", 1.2, 1.5], ["decode", 2, 2.5],
    ["preempted", 2.5, 3], ["recompute", 3, 3.25], ["decode", 3.25, 5], ["send", 5.125, 5.25],
  ]);
  const last = spans.filter((span) => span.kind === "decode")[1];
  assert.deepEqual(last.marks, [{ start: 3.5, end: 4 }]);
  assert.match(spans.find((span) => span.kind === "recompute").detail, /24 again, beside 10 of others/);
});

test("waterfall_of_a_request_that_waits_shows_for_what_up_to_now", () => {
  const stamps = { encoded_s: 0.1, first_scheduled_s: null, first_token_s: null, last_token_s: null, sent_first_s: null, sent_last_s: null, ended_s: null };
  const waiting = preempted({ phase: "queue", phase_s: 3, waits_for: "kv_blocks", stamps, waits: [], chunks: [], attribution: { wall_s: 3.2 } });
  const queue = spansOf(waiting).find((span) => span.kind === "queue");
  assert.deepEqual([queue.start.toFixed(3), queue.end, queue.detail], ["0.200", 3.2, "for KV blocks"]);
});

test("waterfall_of_a_request_refused_at_once_is_not_broken", () => {
  const stamps = { encoded_s: null, first_scheduled_s: null, first_token_s: null, last_token_s: null, sent_first_s: null, sent_last_s: 0.002, ended_s: 0.001 };
  const spans = spansOf(preempted({ stamps, waits: [], chunks: [], attribution: { wall_s: 0.002 } }));
  for (const span of spans) assert.ok(span.end >= span.start && Number.isFinite(span.end), span.label);
});
