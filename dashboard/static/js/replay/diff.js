/**
 * Two traces side by side: the first event in which they differ. As in observability/trace_diff.py, what was decided is
 * compared, not when: times are left out, and a request is named by its place in the order of arrival.
 */

const SETTINGS = ["model", "executor", "tokenizer", "block_size", "num_blocks", "max_num_seqs", "max_num_batched_tokens", "max_model_len", "prefix_cache"];
const TIMES = new Set(["seq", "t", "arrival", "schedule_s", "execute_s", "sample_s", "update_s"]);

/**
 * @param {import("./trace.js").Trace} a
 * @param {import("./trace.js").Trace} b
 * @returns {{settings: [string, unknown, unknown][], place: number}} `place` is the index of the first event that differs,
 *   in both; -1 when one is like the other to the end of both
 */
export function diffTraces(a, b) {
  const settings = SETTINGS.filter((name) => a.header[name] !== b.header[name]).map((name) => [name, a.header[name], b.header[name]]);
  const shorter = Math.min(a.length, b.length);
  for (let i = 0; i < shorter; i++) {
    if (!sameColumns(a, b, i) || canonical(a, i) !== canonical(b, i)) return { settings, place: i };
  }
  return { settings, place: a.length === b.length ? -1 : shorter };
}

function sameColumns(a, b, i) {
  return a.type[i] === b.type[i] && a.step[i] === b.step[i] && a.request[i] === b.request[i] && a.block[i] === b.block[i] && a.a[i] === b.a[i] && a.b[i] === b.b[i] && a.c[i] === b.c[i];
}

/** What of an event is compared, as text. */
export function canonical(trace, i) {
  const event = trace.detail(i);
  const rows = [];
  for (const name of Object.keys(event).sort()) {
    if (TIMES.has(name)) continue;
    rows.push([name, name === "request_id" ? requestNumber(trace, event[name]) : event[name]]);
  }
  return JSON.stringify(rows);
}

function requestNumber(trace, requestId) {
  const request = trace.findRequest(requestId);
  return request < 0 ? requestId : `#${request + 1}`;
}

/** Names of the fields in which event `i` of both differs; empty where one has ended. */
export function differingFields(a, b, i) {
  if (i >= a.length || i >= b.length) return [];
  const [of, other] = [a, b].map((trace) => new Map(JSON.parse(canonical(trace, i)).map(([name, value]) => [name, JSON.stringify(value)])));
  return [...new Set([...of.keys(), ...other.keys()])].filter((name) => of.get(name) !== other.get(name));
}
