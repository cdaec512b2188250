/** Why an event happened, in plain sentences: what the event itself says, and what the events around it show. */

import { TYPE } from "./events.js";
import { shortName } from "./timeline.js";

export const WAITED_FOR = Object.freeze({
  kv_blocks: "free KV blocks: the pool was full of blocks in use",
  token_budget: "room in the token budget: the steps were full of other requests’ tokens",
  max_num_seqs: "a place among the running sequences: max_num_seqs was reached",
  shared_prefix: "an older request to compute the very prefix that it needed next",
});

const MISSED_BECAUSE = {
  cold: "nothing of this prompt had been computed before, or not yet to the end of a block",
  evicted: "what is missing had been cached and was evicted to make room",
  salt: "the same tokens are cached under another cache salt, which keeps them apart on purpose",
  tail: "what is left is the last token, which is always computed, or a block that isn’t full",
  disabled: "the prefix cache is off, for the server or for this request",
};

const FINISHED_BECAUSE = {
  length: "it reached max_tokens or the model’s context",
  stop: "an end-of-sequence token or a stop string ended it",
  error: "a fault of ours ended it",
};

const LOOK_AHEAD = 4_096; // events searched for what an event led to

/**
 * @param {import("./session.js").Session} session
 * @param {number} i event
 * @returns {string[]} sentences, the most telling first
 */
export function whyOf(session, i) {
  const { trace } = session;
  const event = trace.detail(i);
  const why = Object.hasOwn(WHY, event.type) ? WHY[event.type] : () => ["This page doesn’t know this type of event; its fields are shown as they are."];
  return why(event, i, session);
}

const count = (n) => (Number.isFinite(n) ? n.toLocaleString("en-US") : "?");
const plural = (n, one) => `${count(n)} ${one}${n === 1 ? "" : "s"}`;
const who = (trace, i) => shortName(trace, trace.choice[i]);
const words = (text) => String(text ?? "?").replaceAll("_", " ");

/** The next event of the same step that `accepts`, or -1. */
function nextInStep(trace, i, accepts) {
  const stop = Math.min(trace.length, i + LOOK_AHEAD);
  for (let k = i + 1; k < stop && trace.type[k] !== TYPE.step_finished && trace.step[k] === trace.step[i]; k++) if (accepts(k)) return k;
  return -1;
}

/** The latest event before `i` that `accepts`, or -1. */
function before(trace, i, accepts) {
  for (let k = i - 1; k >= Math.max(0, i - 8 * LOOK_AHEAD); k--) if (accepts(k)) return k;
  return -1;
}

/** The pool before a sequence began to give back what it holds, which is told before its preemption is. */
function poolBefore(session, i) {
  const { trace } = session;
  let first = i;
  while (first > 0 && (trace.type[first - 1] === TYPE.block_released || trace.type[first - 1] === TYPE.block_freed)) first--;
  const { free, cached } = session.replay.stateAfter(first).counts;
  return `${plural(free, "block")} ${free === 1 ? "was" : "were"} free and ${count(cached)} only cached`;
}

const WHY = {
  arrived: (event) => [
    `A request of ${plural(event.num_prompt_tokens, "prompt token")} came in; it wants at most ${plural(event.max_tokens, "new token")}${(event.n ?? 1) > 1 ? ` in each of ${event.n} choices` : ""}.`,
    `Priority ${event.priority ?? 0}${event.priority ? "" : ", the usual one"}; within a priority the oldest goes first.`,
  ],
  rejected: (event) => [`The engine refused it before it was queued: ${event.message} (${event.error_type}).`],
  queued: (event) => [
    `It waits for admission. ${event.num_waiting > 1 ? `${plural(event.num_waiting, "request")} wait now, this one included.` : "Nothing else waits."}`,
    "Requests are admitted at the start of a step, after every running sequence has had its tokens.",
  ],
  prefix_lookup(event) {
    const found = `The prefix tree had ${count(event.num_matched_tokens)} of ${plural(event.num_prompt_tokens, "token")}`;
    if (!event.why) return [`${found}: all that can be reused.`];
    if (event.why === "diverged") {
      return [
        `${found}. At position ${event.position} the prompt parts from what is cached in block ${event.block_id}: token ${event.actual_token} where the cache has ${event.expected_token}.`,
      ];
    }
    return [`${found}: ${MISSED_BECAUSE[event.why] ?? event.why}.`];
  },
  scheduled(event, i, { trace }) {
    const waited = before(trace, i, (k) => trace.type[k] === TYPE.queued && trace.request[k] === trace.request[i]);
    const lines = [`Admitted: there was room in the batch, in the token budget and in the pool. ${event.num_cached_tokens ? `${plural(event.num_cached_tokens, "token")} of its prompt came from the prefix cache.` : "Nothing of its prompt was cached."}`];
    if (waited >= 0) lines.push(`It had waited ${milliseconds(trace.t[i] - trace.t[waited])}${blockedText(trace, waited, i)}.`);
    return lines;
  },
  chunk(event, i, { trace }) {
    const request = trace.request[i];
    const arrived = before(trace, i, (k) => trace.type[k] === TYPE.arrived && trace.request[k] === request);
    const prompt = arrived >= 0 ? trace.a[arrived] : 0;
    const end = event.start + event.num_tokens;
    const lines = [`Tokens ${count(event.start)} to ${count((end - 1))} are computed in this step${prompt && end < prompt ? `, ${count((prompt - end))} of the prompt are left for later steps: the step’s token budget is shared` : ""}.`];
    if (event.num_recomputed) lines.push(`${plural(event.num_recomputed, "token")} of it had been computed before: a preemption threw them away.`);
    return lines;
  },
  first_token: (_, i, { trace }) => [`The prompt is computed to its end, so ${who(trace, i)} gets its first token from this step’s logits.`],
  tokens: (event) => [`One forward pass over the batch gave it ${plural(event.num_tokens, "token")}, ${count(event.num_output_tokens)} in all.`],
  preempted(event, i, session) {
    const { trace } = session;
    const taker = nextInStep(trace, i, (k) => trace.type[k] === TYPE.block_allocated && trace.request[k] !== trace.request[i]);
    const lines = [
      `Blocks ran out, and ${who(trace, i)} was the newest of the lowest priority, so it gives its blocks back. ${plural(event.num_lost_tokens, "computed token")} are lost and must be computed again.`,
      `Just before, ${poolBefore(session, i)}; cached blocks are taken first, a sequence only when that isn’t enough.`,
    ];
    if (taker >= 0) lines.push(`The next block went to ${shortName(trace, trace.choice[taker])} (seq ${trace.seqOf(taker)}).`);
    if (event.num_preemptions > 1) lines.push(`It is its preemption number ${event.num_preemptions}.`);
    return lines;
  },
  resumed(event, i, { trace }) {
    const lost = before(trace, i, (k) => trace.type[k] === TYPE.preempted && trace.choice[k] === trace.choice[i]);
    const away = lost >= 0 ? ` after ${milliseconds(trace.t[i] - trace.t[lost])}${blockedText(trace, lost, i)}` : "";
    return [`There was headroom in the pool again, so it comes back${away}. ${plural(event.num_cached_tokens, "token")} were still cached, ${count(event.num_recompute_tokens)} are computed a second time.`];
  },
  sequence_finished: (event) => [
    `Complete with ${plural(event.num_output_tokens, "token")}: ${FINISHED_BECAUSE[event.finish_reason] ?? event.finish_reason}.`,
    ...(event.num_overrun_tokens ? [`${plural(event.num_overrun_tokens, "token")} past the stop string were computed and dropped.`] : []),
  ],
  finished: (event) => [
    `Every choice is complete (${event.finish_reason}): ${plural(event.num_output_tokens, "token")} out of ${plural(event.num_prompt_tokens, "prompt token")}, ${count(event.num_cached_tokens)} of them from the cache.`,
    ...(event.num_preemptions ? [`It was preempted ${plural(event.num_preemptions, "time")}.`] : []),
  ],
  failed: (event) => [`Ended by a fault: ${event.message} (${event.error_type}).`],
  aborted: (event) => [`Nobody wants it any more: ${words(event.reason)}. Its blocks are given back.`],
  step_started: (event) => [`A step begins with ${plural(event.num_running, "running sequence")} and ${count(event.num_waiting)} waiting.`],
  step_finished(event) {
    const lines = [`A ${event.kind} step: ${plural(event.num_prefill_tokens, "prefill token")} and ${plural(event.num_decode_tokens, "decode token")} of ${count(event.token_budget)} in the budget, for ${plural(event.num_seqs, "sequence")}.`];
    if (event.num_recomputed_tokens) lines.push(`${plural(event.num_recomputed_tokens, "token")} were computed a second time, after a preemption.`);
    if (event.blocked_on) lines.push(`The head of the queue still waits for ${WAITED_FOR[event.blocked_on] ?? event.blocked_on}.`);
    lines.push(`Executing took ${milliseconds(event.execute_s)}, scheduling ${milliseconds(event.schedule_s)}, sampling ${milliseconds(event.sample_s)}, updating ${milliseconds(event.update_s)}.`);
    return lines;
  },
  block_allocated: (event, i, { trace }) => [`${who(trace, i)} needs room for its next tokens: a free block became entry ${event.position} of its block table.`],
  block_shared: (event, i, { trace }) => [
    `${who(trace, i)} has the same tokens at entry ${event.position} as are in this block: it is referenced once more (${plural(event.ref_count, "owner")} now), and nothing is computed.`,
  ],
  block_copied: (event, i, { trace }) => [
    `Copy-on-write: ${who(trace, i)} has the first ${plural(event.num_tokens, "token")} of block ${event.source} in common with it and goes on with tokens of its own, so they are copied to block ${event.block_id}.`,
  ],
  block_published: (event) => [
    `The block is full and its KV is written, so it enters the prefix tree ${event.parent_block_id < 0 ? "as the beginning of a prompt" : `below block ${event.parent_block_id}`}: who sends the same tokens reuses it.`,
  ],
  block_released(event, i, session) {
    const { trace } = session;
    const block = session.replay.stateAfter(i).blocks[event.block_id];
    const rest = event.ref_count ? `${plural(event.ref_count, "owner")} still hold${event.ref_count === 1 ? "s" : ""} it` : block.published ? "nobody holds it now; it stays cached until its room is needed" : "nobody holds it and it isn’t in the prefix tree, so it is freed";
    return [`${who(trace, i)} lets go of it: ${rest}.`];
  },
  block_evicted(event, i, session) {
    const { trace } = session;
    if (event.reason === "reset") return ["Somebody asked for the prefix cache to be cleared."];
    if (event.reason === "fault") return ["Its request failed, so what is in it may be damaged: it must not be reused."];
    const taker = nextInStep(trace, i, (k) => trace.type[k] === TYPE.block_allocated);
    const used = session.replay.stateAfter(i).blocks[event.block_id].last;
    const lines = [`Room was needed, and this was a cached block that nobody held, with nothing cached below it${used >= 0 ? `, last touched at seq ${trace.seqOf(used)}` : ""}.`];
    if (taker >= 0) lines.push(`The room went to ${shortName(trace, trace.choice[taker])} (seq ${trace.seqOf(taker)}).`);
    return lines;
  },
  block_freed: () => ["It is on the free list again: nobody holds it and it isn’t cached."],
  cache_cleared: (event) => [`The prefix tree was emptied on request, ${plural(event.num_blocks, "block")} of it.`],
  engine_started: (event) => [`${event.model} on ${event.executor}: ${plural(event.num_blocks, "block")} of ${event.block_size} tokens, at most ${event.max_num_seqs} sequences and ${event.max_num_batched_tokens} tokens a step.`],
  engine_stopped: (event) => [`The engine ended in order: ${event.reason}.`],
  engine_failed: (event) => [`A step raised, or the process was lost: ${event.error}. Everything in flight has failed${event.lost ? ", and the KV blocks went with the process" : ""}.`],
  stalled: (event, i, { trace }) => [`Nothing could be scheduled for ${plural(event.num_steps, "step")} while ${plural(event.num_waiting, "request")} waited. ${words(event.request_id)} is the one in question: ${event.cause}.`],
};

/** What the head of the queue waited for in the steps from one event to another, the most frequent reason. */
function blockedText(trace, from, to) {
  const times = new Map();
  for (let k = Math.max(from, to - 8 * LOOK_AHEAD); k < to; k++) {
    if (trace.type[k] !== TYPE.step_finished) continue;
    const reason = trace.detail(k).blocked_on;
    if (reason) times.set(reason, (times.get(reason) ?? 0) + 1);
  }
  const [reason] = [...times].sort((x, y) => y[1] - x[1])[0] ?? [""];
  return reason ? `, mostly for ${WAITED_FOR[reason] ?? reason}` : ", for the step in progress to end";
}

export function milliseconds(seconds) {
  if (!Number.isFinite(seconds)) return "? ms";
  if (seconds >= 1) return `${seconds.toFixed(2)} s`;
  return seconds >= 0.1 ? `${Math.round(seconds * 1e3)} ms` : `${(seconds * 1e3).toFixed(2)} ms`;
}
