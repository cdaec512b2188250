import assert from "node:assert/strict";
import { test } from "node:test";

import { requestOfTrace } from "../../../../dashboard/static/js/replay/find_request.js";
import { LiveSource, MAX_LIVE_EVENTS } from "../../../../dashboard/static/js/replay/live_source.js";
import { TraceError } from "../../../../dashboard/static/js/replay/trace_error.js";
import { anyEvents, event, HEADER, traceOf } from "./made_traces.mjs";

globalThis.CustomEvent ??= class extends Event {
  constructor(name, { detail }) {
    super(name);
    this.detail = detail;
  }
}; // Node 18 hasn't it yet, every browser has

class Stream extends EventTarget {
  constructor(url) {
    super();
    this.url = url;
    this.readyState = 1;
    this.isClosed = false;
  }

  close() {
    this.isClosed = true;
  }

  say(data) {
    this.onmessage({ data: JSON.stringify(data) });
  }

  sayNamed(name, data) {
    this.dispatchEvent(Object.assign(new Event(name), { data: JSON.stringify(data) }));
  }
}

async function started(events = anyEvents(1, 20)) {
  const streams = [];
  const loader = { load: async () => traceOf(events) };
  const source = new LiveSource(loader, { openStream: (url) => streams.at(streams.push(new Stream(url)) - 1) });
  const heard = [];
  for (const name of ["trace", "events", "lost"]) source.addEventListener(name, () => heard.push(name));
  await source.start();
  return { source, streams, heard };
}

test("live_source_reads_the_ring_and_follows_behind_its_last_event", async () => {
  const { source, streams, heard } = await started();
  assert.match(streams[0].url, /life=made-1&since=20/);
  streams[0].say(anyEvents(1, 30).slice(20));
  assert.equal(source.trace.length, 30);
  assert.deepEqual(heard, ["trace", "events"]);
});

test("live_source_takes_what_it_has_already_only_once", async () => {
  const { source, streams } = await started();
  streams[0].say(anyEvents(1, 30).slice(15));
  assert.equal(source.trace.length, 30);
});

test("live_source_after_a_restart_begins_a_trace_of_its_own", async () => {
  const { source, streams, heard } = await started();
  streams[0].sayNamed("life", { life: "made-1", header: HEADER });
  assert.equal(source.trace.length, 20);
  streams[0].sayNamed("life", { life: "made-2", header: { ...HEADER, life: "made-2" } });
  assert.equal(source.trace.length, 0);
  streams[0].say(anyEvents(2, 5));
  assert.equal(source.trace.header.life, "made-2");
  assert.equal(source.trace.length, 5);
  assert.deepEqual(heard, ["trace", "trace", "events"]);
});

test("live_source_that_missed_events_or_gets_nonsense_says_so_and_stops", async () => {
  for (const speak of [(stream) => stream.sayNamed("gap", { num_dropped: 3 }), (stream) => stream.say(anyEvents(1, 60).slice(40)), (stream) => stream.say({ error: { message: "down" } })]) {
    const { streams, heard } = await started();
    speak(streams[0]);
    assert.deepEqual(heard, ["trace", "lost"]);
    assert.equal(streams[0].isClosed, true);
  }
});

test("live_source_that_cannot_read_the_ring_says_why", async (context) => {
  context.mock.timers.enable({ apis: ["setTimeout"] });
  let calls = 0;
  const loader = { load: async () => { calls++; throw new TraceError("the engine has said nothing yet"); } };
  const source = new LiveSource(loader, { openStream: () => assert.fail("nothing to follow") });
  const said = [];
  source.addEventListener("state", (each) => said.push(each.detail.state + each.detail.message));
  await source.start();
  assert.deepEqual(said, ["connecting", "failedthe engine has said nothing yet"]);
  context.mock.timers.tick(2_000);
  assert.equal(calls, 2);
  source.stop();
});

test("trace_id_leads_to_its_request_in_the_span_ring_or_in_the_request_table", async () => {
  const answers = {
    "api/telemetry/traces/t1": { trace: { request_ids: ["r1"] }, in_flight: [] },
    "api/telemetry/traces/t2": { trace: { request_ids: [] }, in_flight: ["r2"] },
    "api/telemetry/requests?recent=1000": { in_flight: [], recent: [{ trace_id: "t3", request_id: "r3" }] },
  };
  const fetch = async (url) => ({ ok: url in answers, json: async () => answers[url] });
  const found = await Promise.all(["t1", "t2", "t3", "t4"].map((id) => requestOfTrace(id, { fetch })));
  assert.deepEqual(found, ["r1", "r2", "r3", ""]);
});

test("live_source_of_a_ring_beyond_its_bound_follows_it_nonetheless", async () => {
  const { source, streams, heard } = await started(smallEvents(1, MAX_LIVE_EVENTS + 5));
  streams[0].say(smallEvents(MAX_LIVE_EVENTS + 6, 10));
  assert.equal(source.trace.length, MAX_LIVE_EVENTS + 15);
  assert.deepEqual(heard, ["trace", "events"]);
});

/** Steps of an engine that has nothing to do: what many events cost at least. */
function smallEvents(firstSeq, length) {
  return Array.from({ length }, (_, i) => event("step_started", firstSeq + i, { num_running: 0, num_waiting: 0 }));
}
