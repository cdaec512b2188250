import assert from "node:assert/strict";
import { test } from "node:test";

import { LIMITS, TraceParser } from "../../../../dashboard/static/js/replay/parse.js";
import { Session } from "../../../../dashboard/static/js/replay/session.js";
import { summaryOf } from "../../../../dashboard/static/js/replay/summary.js";
import { Trace } from "../../../../dashboard/static/js/replay/trace.js";
import { TraceError } from "../../../../dashboard/static/js/replay/trace_error.js";
import { layTree } from "../../../../dashboard/static/js/replay/prefix_tree.js";
import { perfettoOf } from "../../../../dashboard/static/js/replay/perfetto.js";
import { whyOf } from "../../../../dashboard/static/js/replay/why.js";
import { anyEvents, event, fileOf, HEADER, randomOf } from "./made_traces.mjs";

function parse(bytes, { piece = bytes.length, limits = LIMITS } = {}) {
  const parser = new TraceParser(limits);
  for (let at = 0; at < bytes.length; at += piece) parser.feed(bytes.subarray(at, at + piece));
  return Trace.fromParts(parser.parts());
}

const text = (value) => new TextEncoder().encode(value);
const line = (value) => `${JSON.stringify(value)}\n`;

test("parser_gives_the_same_trace_for_every_cut_of_the_bytes", () => {
  const events = anyEvents(1, 40);
  events[7].request_id = "naïve 🙂 \u2028 id";
  const bytes = fileOf(events);
  for (const piece of [1, 2, 3, 17, 4096]) {
    const trace = parse(bytes, { piece });
    assert.equal(trace.length, 40);
    events.forEach((expected, i) => assert.deepEqual(trace.detail(i), expected));
  }
});

test("events_of_unknown_types_are_kept_and_counted", () => {
  const trace = parse(fileOf([event("brand_new", 1, { anything: [1, { x: 2 }] }), event("block_freed", 2, { block_id: 3 })]));
  assert.equal(trace.numUnknown, 1);
  assert.deepEqual(trace.detail(0).anything, [1, { x: 2 }]);
  assert.equal(trace.typeName(0), "brand_new");
});

test("file_that_ends_within_an_event_is_shown_up_to_there", () => {
  const bytes = fileOf(anyEvents(2, 30));
  const trace = parse(bytes.subarray(0, bytes.length - 9));
  assert.equal(trace.length, 29);
  assert.equal(trace.isTruncated, true);
});

test("trace_may_begin_late_and_keeps_its_numbers", () => {
  const trace = parse(fileOf(anyEvents(3, 10, { firstSeq: 501 }), { ...HEADER, num_dropped_events: 500 }));
  assert.equal(trace.firstSeq, 501);
  assert.equal(trace.indexOfSeq(505), 4);
});

test("snapshot_is_taken_over", () => {
  const block = { type: "snapshot_block", block_id: 4, state: "referenced", ref_count: 1, owners: [{ request_id: "a", index: 0, position: 0 }], published: true, block_hash: "x", parent_block_id: -1, last_event: "block_published", last_seq: 9, last_t: 0.1 };
  const request = { type: "snapshot_request", request_id: "a", num_prompt_tokens: 7, num_cached_tokens: 0, num_matched_tokens: 0, queued: true, scheduled: true, choices: [{ index: 0, num_computed_tokens: 7, num_output_tokens: 1, num_preemptions: 0, running: true, finished: false }] };
  const lines = [HEADER, { type: "snapshot", seq: 20, t: 0.02, step: 3, num_blocks_told: 1, num_requests_told: 1 }, block, request, event("block_freed", 21, { block_id: 4, step: 3 })];
  const trace = parse(text(lines.map(line).join("")));
  const session = new Session(trace);
  assert.equal(trace.firstSeq, 21);
  assert.equal(session.replay.stateAfter(0).counts.referenced, 1);
  assert.equal(session.replay.stateAfter(1).counts.free, 12);
  assert.equal(session.lanes.byChoice[0].open, 2);
});

for (const [name, content, message] of [
  ["nothing", "", /empty/],
  ["another_json_file", '{"a": 1}\n', /not a Pellucid trace/],
  ["text", "hello\n", /line 1: not JSON/],
  ["an_array", "[]\n", /line 1: not a JSON object/],
  ["another_version", line({ ...HEADER, version: 99 }), /version/],
  ["no_blocks", line({ ...HEADER, num_blocks: 0 }), /num_blocks/],
  ["too_many_blocks", line({ ...HEADER, num_blocks: 2e9 }), /num_blocks/],
  ["a_gap", line(HEADER) + line(event("block_freed", 1, { block_id: 1 })) + line(event("block_freed", 3, { block_id: 1 })), /line 3: `seq` must be gapless: 3 where 2 was due/],
  ["time_backwards", line(HEADER) + line(event("block_freed", 1, { block_id: 1, t: 5 })) + line(event("block_freed", 2, { block_id: 1, t: 4 })), /line 3: time runs backwards/],
  ["a_block_outside_of_the_pool", line(HEADER) + line(event("block_freed", 1, { block_id: 12 })), /line 2: event `block_freed`: `block_id` must be an integer in 0\.\.11/],
  ["a_number_that_is_text", line(HEADER) + line(event("tokens", 1, { request_id: "a", num_tokens: "1", num_output_tokens: 1 })), /num_tokens/],
  ["a_missing_request", line(HEADER) + line(event("queued", 1)), /request_id/],
  ["deep_nesting", `${line(HEADER)}${'{"type":"x","seq":1,"t":1,"step":0,"d":'}${"[".repeat(5000)}\n`, /nested deeper than 32/],
  ["a_snapshot_cut_short", line(HEADER) + line({ type: "snapshot", seq: 1, t: 0, step: 0, num_blocks_told: 5, num_requests_told: 0 }), /ends within its snapshot/],
]) {
  test(`file_of_${name}_is_refused_with_one_message`, () => {
    assert.throws(() => parse(text(content)), (error) => error instanceof TraceError && message.test(error.message) && !error.message.includes("\n"));
  });
}

test("limits_end_a_file_that_is_too_large_in_any_way", () => {
  const bytes = fileOf(anyEvents(4, 50));
  assert.throws(() => parse(bytes, { limits: { ...LIMITS, events: 20 } }), /more than 20 events/);
  assert.throws(() => parse(bytes, { limits: { ...LIMITS, bytes: 1000 } }), /larger than/);
  assert.throws(() => parse(bytes, { piece: 64, limits: { ...LIMITS, line: 100 } }), /line is too long/);
  assert.throws(() => parse(new Uint8Array([...text(line(HEADER)), 0xff, 0xfe, 10])), /not UTF-8/);
});

/** Bytes changed, lost, doubled, moved; numbers and strings replaced. */
function mutated(bytes, random) {
  const upTo = (n) => Math.floor(random() * n);
  let changed = Uint8Array.from(bytes);
  for (let k = 0; k <= upTo(4); k++) {
    const at = upTo(changed.length);
    const kind = upTo(5);
    if (kind === 0) changed[at] = upTo(256);
    else if (kind === 1) changed = changed.filter((_, i) => i < at || i > at + upTo(30));
    else if (kind === 2) changed = Uint8Array.from([...changed.slice(0, at), ...changed.slice(upTo(at + 1), at), ...changed.slice(at)].slice(0, 60_000));
    else if (kind === 3) changed = changed.slice(0, at);
    else {
      const hostile = ['"__proto__"', "1e999", "-1", "null", "[]", '"<img src=x onerror=alert(1)>"', "99999999999", "true", '"\\ud800"'];
      const whole = new TextDecoder().decode(changed);
      const values = [...whole.matchAll(/:("[^"]*"|-?[\d.e+-]+)/g)];
      if (!values.length) continue;
      const hit = values[upTo(values.length)];
      changed = text(whole.slice(0, hit.index + 1) + hostile[upTo(hostile.length)] + whole.slice(hit.index + hit[0].length));
    }
  }
  return changed;
}

test("mutated_traces_are_refused_in_one_line_or_shown_and_never_break_the_page", () => {
  const random = randomOf(77);
  let numShown = 0;
  for (let round = 0; round < 600; round++) {
    const bytes = mutated(fileOf(anyEvents(round % 7, 25)), random);
    let trace;
    try {
      trace = parse(bytes, { piece: 1 + Math.floor(random() * 3000) });
    } catch (error) {
      assert.ok(error instanceof TraceError, `round ${round}: ${error.stack}`);
      assert.ok(!error.message.includes("\n") && error.message.length < 300, error.message);
      continue;
    }
    numShown++;
    const session = new Session(trace);
    for (let i = 0; i < trace.length; i++) {
      session.cursor = i;
      const sentences = whyOf(session, i);
      assert.ok(sentences.length && sentences.every((sentence) => typeof sentence === "string"), `round ${round}, event ${i}`);
      assert.equal(typeof summaryOf(trace, i), "string");
      layTree(session.state);
    }
    session.useAxis("steps");
    for (let x = -1; x < 5; x += 0.3) session.seekPlace(x);
    JSON.stringify(perfettoOf(trace));
  }
  assert.ok(numShown > 40, `only ${numShown} were shown`);
});
