/** The vocabulary of engine events, as docs/trace.md and the schema of trace files have it. */

export const TYPES = Object.freeze([
  "arrived", "rejected", "queued", "scheduled", "chunk", "first_token", "tokens", "preempted", "resumed",
  "sequence_finished", "finished", "failed", "aborted", "step_started", "step_finished", "block_allocated",
  "block_shared", "block_copied", "block_published", "block_released", "block_evicted", "block_freed", "cache_cleared",
  "prefix_lookup", "engine_started", "engine_stopped", "engine_failed", "stalled",
]);

/** Code of each type; `unknown` stands for every type that this page has never heard of. */
export const TYPE = Object.freeze({
  ...Object.fromEntries(TYPES.map((name, code) => [name, code])),
  unknown: TYPES.length,
});

/**
 * Integers of an event that are kept in columns, in the order a, b, c. Everything else stays in the event's line and is
 * read when somebody looks at it.
 */
export const NUMBERS = Object.freeze({
  arrived: ["num_prompt_tokens", "max_tokens", "n"],
  scheduled: ["num_cached_tokens"],
  chunk: ["start", "num_tokens", "num_recomputed"],
  tokens: ["num_tokens", "num_output_tokens"],
  preempted: ["num_lost_tokens", "num_preemptions"],
  resumed: ["num_cached_tokens", "num_recompute_tokens"],
  sequence_finished: ["num_output_tokens"],
  step_finished: ["num_free_blocks", "num_referenced_blocks", "num_cached_blocks"],
  block_allocated: ["position"],
  block_shared: ["position", "ref_count"],
  block_copied: ["source", "num_tokens"],
  block_published: ["parent_block_id"],
  block_released: ["ref_count"],
  prefix_lookup: ["num_matched_tokens", "num_prompt_tokens"],
});

/** Fields that may be left out of a line, and what that means. */
export const DEFAULTS = Object.freeze({ index: 0, n: 1, num_recomputed: 0 });

const OF_REQUEST = [
  "arrived", "rejected", "queued", "scheduled", "chunk", "first_token", "tokens", "preempted", "resumed",
  "sequence_finished", "finished", "failed", "aborted", "prefix_lookup",
];
const OF_CHOICE_BLOCK = ["block_allocated", "block_shared", "block_copied", "block_published", "block_released"];
const OF_BLOCK = [...OF_CHOICE_BLOCK, "block_evicted", "block_freed"];
const ENDS = ["rejected", "finished", "failed", "aborted"];

const flags = (names) => TYPES.map((name) => names.includes(name));

/** By code: whether the type names a request, a block, ends a request. */
export const NAMES_REQUEST = flags([...OF_REQUEST, ...OF_CHOICE_BLOCK]);
export const NAMES_BLOCK = flags(OF_BLOCK);
export const ENDS_REQUEST = flags(ENDS);

/** By code: the filter of the event list that shows it. */
export const FAMILY = Object.freeze(
  [...TYPES, "unknown"].map((name) => {
    if (name.startsWith("block_") || name === "cache_cleared") return "kv";
    if (name.startsWith("step_")) return "steps";
    if (name.startsWith("engine_") || name === "stalled" || name === "unknown") return "engine";
    return "requests";
  }),
);
