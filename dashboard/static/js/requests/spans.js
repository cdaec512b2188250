/** The life of a request as spans in the order of time: what the waterfall draws. No DOM. */

const WAITS_FOR = {
  kv_blocks: "KV blocks",
  token_budget: "token budget",
  max_num_seqs: "a sequence slot",
  shared_prefix: "a shared prefix",
  next_step: "the next step",
};

/** What the head of the queue waits for, in words. */
export function waitsFor(reason) {
  return WAITS_FOR[reason] ?? reason;
}

/**
 * @typedef {object} Span
 * @property {string} kind tokenize | inbox | queue | prefill | recompute | decode | preempted | send
 * @property {string} label
 * @property {string} detail what is worth knowing beside its length
 * @property {number} start seconds after arrival
 * @property {number} end
 * @property {{start: number, end: number}[]} [marks] parts of it that others' prefill made longer
 */

/**
 * @param {object} detail body of GET /telemetry/requests/{id}
 * @param {object|null} steps body of GET /telemetry/steps, for the ends of chunks and for interference; null without
 * @returns {Span[]}
 */
export function spansOf(detail, steps = null) {
  const { stamps } = detail;
  const end = Math.max(detail.attribution.wall_s, stamps.sent_last_s ?? 0, stamps.ended_s ?? 0);
  const timed = stepTimes(detail, steps);
  const spans = [];
  const add = (kind, label, start, stop, note = "", marks = []) => {
    if (start !== null && stop !== null && stop >= start) spans.push({ kind, label, detail: note, start, end: stop, marks });
  };
  add("tokenize", "tokenize", 0, stamps.encoded_s ?? end, `${detail.num_prompt_tokens} tokens`);
  const inEngine = detail.waits[0]?.start_s ?? stamps.first_scheduled_s;
  if (stamps.encoded_s !== null && inEngine !== null && inEngine !== undefined) {
    add("inbox", "engine inbox", stamps.encoded_s, inEngine);
  }
  for (const wait of detail.waits) {
    if (wait.cause === "preempted") add("preempted", "preempted", wait.start_s, wait.end_s, "gave its blocks back");
    else add("queue", "queued", wait.start_s, wait.end_s);
  }
  if (["queue", "preempted"].includes(detail.phase)) {
    const kind = detail.phase === "queue" ? "queue" : "preempted";
    const reason = detail.waits_for ? `for ${waitsFor(detail.waits_for)}` : "";
    add(kind, kind === "queue" ? "queued" : "preempted", Math.max(0, end - detail.phase_s), end, reason);
  }
  const again = [];
  detail.chunks.forEach((chunk, i) => {
    const step = timed.get(chunk.step);
    const stop = step?.end ?? chunkEnd(detail, i, end);
    const others = step ? step.prefill - chunk.num_tokens : 0;
    const range = `tokens ${chunk.start}–${chunk.start + chunk.num_tokens - 1}`;
    const beside = others > 0 ? `, beside ${others} of others` : "";
    const kind = chunk.num_recomputed > 0 ? "recompute" : "prefill";
    if (kind === "recompute") again.push({ start: chunk.at_s, end: stop });
    add(kind, `${kind} ${i + 1}`, chunk.at_s, stop, `${range}${kind === "recompute" ? `, ${chunk.num_recomputed} again` : ""}${beside}`);
  });
  const own = new Set(detail.chunks.map((chunk) => chunk.step));
  for (const { start, stop } of decodeParts(detail, again, end)) {
    const marks = [...timed.values()]
      .filter((step) => step.prefill > 0 && !own.has(step.number) && step.end > start && step.start < stop)
      .map((step) => ({ start: Math.max(start, step.start), end: Math.min(stop, step.end) }));
    add("decode", "decode", start, stop, marks.length ? `${marks.length} steps with others’ prefill` : "", marks);
  }
  if (stamps.ended_s !== null) add("send", "send", stamps.ended_s, stamps.sent_last_s ?? end);
  return spans.sort((a, b) => a.start - b.start || a.end - b.end);
}

/** From the first token, or from where what was lost is computed again, to the next preemption or the last token. */
function decodeParts(detail, again, end) {
  const { first_token_s: first, last_token_s: last, ended_s: ended } = detail.stamps;
  if (first === null) return [];
  const stop = ended === null ? end : (last ?? ended);
  const preempted = detail.waits.filter((wait) => wait.cause === "preempted" && wait.end_s > first);
  const parts = [];
  let start = first;
  for (const wait of preempted) {
    parts.push({ start, stop: Math.min(stop, wait.start_s) });
    const next = preempted.find((other) => other.start_s > wait.start_s)?.start_s ?? Infinity;
    start = Math.max(wait.end_s, ...again.filter((part) => part.start >= wait.end_s && part.start < next).map((part) => part.end));
  }
  if (detail.phase === "preempted") parts.push({ start, stop: Math.max(start, end - detail.phase_s) });
  else parts.push({ start, stop });
  return parts.filter((part) => part.stop > part.start);
}

/** Without the steps' own times a chunk ends where the next thing begins. */
function chunkEnd(detail, i, end) {
  const at = detail.chunks[i].at_s;
  const nexts = [detail.chunks[i + 1]?.at_s, detail.stamps.first_token_s, ...detail.waits.map((wait) => wait.start_s), detail.stamps.ended_s, end];
  return Math.min(...nexts.filter((t) => t !== null && t !== undefined && t > at));
}

/** @returns {Map<number, {number: number, start: number, end: number, prefill: number}>} by step, in seconds after the arrival */
function stepTimes(detail, steps) {
  if (!steps) return new Map();
  const toArrival = steps.monotonic_origin - detail.arrival;
  const wall = detail.attribution.wall_s;
  return new Map(
    steps.steps
      .map((step) => [step.step, { number: step.step, start: step.started + toArrival, end: step.t + toArrival, prefill: step.num_prefill_tokens }])
      .filter(([, { start, end }]) => end >= 0 && start <= wall),
  );
}
