/** Seeded traces for tests: any sequence of well-formed events, sensible or not, and lines of a file. */

import { NUMBERS, TYPES } from "../../../../dashboard/static/js/replay/events.js";
import { Trace } from "../../../../dashboard/static/js/replay/trace.js";

export const HEADER = Object.freeze({
  schema: "pellucid-trace", version: 2, model: "made", executor: "none", tokenizer: "", block_size: 4, num_blocks: 12,
  max_num_seqs: 4, max_num_batched_tokens: 16, max_model_len: 64, prefix_cache: true, wall_origin_s: 1.8e9,
  monotonic_origin_s: 0, num_dropped_events: 0, life: "made-1",
});

/** mulberry32: the same numbers for the same seed. */
export function randomOf(seed) {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = state;
    t = Math.imul(t ^ (t >>> 15), t | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
}

/** Events of every type in any order: what seeking must cope with is more than what an engine says. */
export function anyEvents(seed, length, { firstSeq = 1 } = {}) {
  const random = randomOf(seed);
  const upTo = (n) => Math.floor(random() * n);
  let t = 1;
  let step = 0;
  return Array.from({ length }, (_, i) => {
    const type = TYPES[upTo(TYPES.length)];
    t += random() < 0.5 ? 0 : random() / 100;
    if (type === "step_started") step++;
    const event = { type, seq: firstSeq + i, t, step, request_id: `r${upTo(6)}`, index: upTo(3), block_id: upTo(HEADER.num_blocks) };
    for (const name of NUMBERS[type] ?? []) event[name] = upTo(name === "source" ? HEADER.num_blocks : 10);
    if (type === "block_published") event.parent_block_id = upTo(HEADER.num_blocks + 1) - 1;
    if (type === "engine_failed") event.lost = random() < 0.3;
    return event;
  });
}

export function traceOf(events, { header = HEADER, snapshot = null } = {}) {
  const trace = new Trace(header, snapshot);
  for (const event of events) trace.append(event);
  return trace;
}

/** One event with the fields that the page's columns want. */
export function event(type, seq, fields = {}) {
  return { type, seq, t: seq / 1000, step: 0, ...fields };
}

export function fileOf(events, header = HEADER) {
  return new TextEncoder().encode([header, ...events].map((line) => `${JSON.stringify(line)}\n`).join(""));
}
