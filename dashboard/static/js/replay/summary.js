/** One line of the event list: what an event says, in short. */

import { TYPE, TYPES } from "./events.js";
import { shortName } from "./timeline.js";

/** @returns {string} at most about 60 characters, from the columns alone */
export function summaryOf(trace, i) {
  const code = trace.type[i];
  const { a, b, c } = { a: trace.a[i], b: trace.b[i], c: trace.c[i] };
  const block = trace.block[i];
  const who = trace.choice[i] >= 0 ? shortName(trace, trace.choice[i]) : "";
  switch (code) {
    case TYPE.arrived: return `${who} · ${a} prompt tokens`;
    case TYPE.scheduled: return `${who} · ${a} cached`;
    case TYPE.chunk: return `${who} · tokens ${a}–${a + b - 1}${c ? ` · ${c} again` : ""}`;
    case TYPE.tokens: return `${who} · +${a}, ${b} in all`;
    case TYPE.preempted: return `${who} · loses ${a} tokens`;
    case TYPE.resumed: return `${who} · ${a} cached, ${b} again`;
    case TYPE.prefix_lookup: return `${who} · ${a} of ${b} tokens`;
    case TYPE.sequence_finished: return `${who} · ${a} tokens`;
    case TYPE.step_started: return `step ${trace.step[i]}`;
    case TYPE.step_finished: return `step ${trace.step[i]} · ${a} free, ${b} held, ${c} cached`;
    case TYPE.block_allocated: return `block ${block} → ${who} [${a}]`;
    case TYPE.block_shared: return `block ${block} → ${who} [${a}] · ${b} owners`;
    case TYPE.block_copied: return `block ${a} → ${block} · ${b} tokens, ${who}`;
    case TYPE.block_published: return `block ${block} ${a < 0 ? "as a root" : `below ${a}`}`;
    case TYPE.block_released: return `block ${block} ← ${who} · ${a} left`;
    case TYPE.block_evicted:
    case TYPE.block_freed: return `block ${block}`;
    default: return who || (TYPES[code] ? "" : "a type that this page doesn’t know");
  }
}
