/** A live replay that is left open: far more events than a followed trace may hold, through all that keeps something. */

import assert from "node:assert/strict";
import { test } from "node:test";
import v8 from "node:v8";
import vm from "node:vm";
import { LiveSource, MAX_LIVE_EVENTS } from "../../../../dashboard/static/js/replay/live_source.js";
import { Session } from "../../../../dashboard/static/js/replay/session.js";
import { anyEvents, HEADER, traceOf } from "./made_traces.mjs";

const RING = 2_000; // events that the server holds
const BATCH = 1_000;
const MAX_HELD = MAX_LIVE_EVENTS + BATCH;
const NUM_EVENTS = 2 * MAX_LIVE_EVENTS + 10 * BATCH;

v8.setFlagsFromString("--expose-gc");
const collect = vm.runInNewContext("gc");

globalThis.CustomEvent ??= class extends Event {
  constructor(name, { detail }) {
    super(name);
    this.detail = detail;
  }
}; // Node 18 hasn't it yet, every browser has

class Stream extends EventTarget {
  close() {}
}

test("followed_trace_is_read_anew_before_it_grows_without_bound", async () => {
  const pattern = anyEvents(3, BATCH);
  const life = { ...HEADER, life: "long" };
  let seq = 0;
  let stream = null;
  const eventsAt = (from) => pattern.map((each, i) => ({ ...each, seq: from + i, t: (from + i) / 1e3, step: from + each.step }));
  const ring = () => {
    const snapshot = { seq: seq - (seq ? RING : 0), blocks: [], requests: [] };
    const events = seq ? [...eventsAt(snapshot.seq + 1), ...eventsAt(snapshot.seq + 1 + BATCH)] : [];
    return traceOf(events, { header: life, snapshot });
  };
  const source = new LiveSource({ load: async () => ring() }, { openStream: () => (stream = new Stream()) });
  let session = null;
  let longest = 0;
  const traces = []; // weakly
  source.addEventListener("trace", ({ detail }) => {
    traces.push(new WeakRef(detail));
    session = new Session(detail);
  });
  source.addEventListener("events", () => session.grow({ follow: true }));
  let lost = Promise.resolve();
  source.addEventListener("lost", () => (lost = source.start()));
  await source.start();
  while (seq < NUM_EVENTS) {
    const events = eventsAt(seq + 1);
    seq += BATCH; // before anybody hears of them, the ring has them
    stream.onmessage({ data: JSON.stringify(events) });
    longest = Math.max(longest, session.trace.length);
    await lost;
  }
  assert.ok(longest <= MAX_HELD, `${longest} events in one trace`);
  assert.equal(traces.length, 3);
  assert.equal(session.trace.seqOf(session.trace.length - 1), NUM_EVENTS);
  await new Promise((done) => setImmediate(done));
  collect();
  assert.deepEqual(traces.map((trace) => trace.deref() !== undefined), [false, false, true], "traces that are still held");
});
