/** What each number of `GET /stats` means, by its path: [title, meaning, how it is written]. */

const SINCE_START = "since the service started";

export const SECTIONS = [
  {
    path: "engine", title: "Engine", says: "What runs. Sizes are 0 until the engine has started.",
    rows: {
      state: ["state", "loading, ready or down.", "text"],
      model: ["model", "As it was asked for: a file, a directory or a name.", "text"],
      executor: ["executor", "What computes.", "text"],
      block_size: ["block size", "Tokens per KV block.", "count"],
      num_blocks: ["blocks", "KV blocks in the pool.", "count"],
      max_num_seqs: ["sequences at once", "More wait, whatever room there is.", "count"],
      max_num_batched_tokens: ["token budget", "Tokens computed in one step at most; a long prompt is cut into chunks of it.", "count"],
      max_model_len: ["context", "Tokens of prompt and output together.", "count"],
      prefix_cache: ["prefix cache", "Whether the KV of equal beginnings is reused.", "text"],
      restarts: ["restarts", "Times the engine process was started again; each fails everything in flight.", "count"],
      heartbeat_age_s: ["last heard from", "Since the engine’s last message. Long means a very long step, or that it hangs.", "seconds"],
    },
  },
  {
    path: "gauges", title: "Now", says: "How things stand at this moment.",
    rows: {
      in_flight: ["in flight", "Requests that have arrived and not ended, tokenizing and sending included.", "count"],
      running: ["running", "Requests that hold KV blocks.", "count"],
      waiting: ["waiting", "Requests in the queue, those to be resumed included.", "count"],
      blocked_on: ["head of the queue waits for", "Nobody overtakes the head, so this is what all of them wait for.", "text"],
      oldest_waiting_s: ["oldest waits since", "Of those that wait now.", "seconds"],
    },
  },
  {
    path: "gauges.kv", title: "KV pool", says: "free + referenced + cached = total, always.",
    rows: {
      total: ["total", "Blocks of the pool.", "count"],
      free: ["free", "Nothing in them.", "count"],
      referenced: ["referenced", "Held by a sequence; only these are taken.", "count"],
      cached: ["cached", "Held for a prompt that may come again; given up the moment somebody needs them.", "count"],
      usage_ratio: ["usage", "referenced / total. Cached blocks don’t count: a full cache is not pressure.", "percent"],
      tail_waste_tokens: ["tail waste", "Token slots in last blocks that no token has been written to.", "count"],
    },
  },
  {
    path: "counters", title: "Counters", says: `All ${SINCE_START}. received = finished + aborted + failed + rejected + in flight.`,
    rows: {
      requests_received: ["requests received", "Taken note of.", "count"],
      requests_finished: ["finished", "Ended with stop or length.", "count"],
      requests_aborted: ["aborted", "Given up by the client, or cancelled.", "count"],
      requests_failed: ["failed", "Our fault.", "count"],
      requests_rejected: ["rejected", "Refused before any work: bad input, a full queue, not ready.", "count"],
      prompt_tokens_computed: ["prompt tokens computed", "Prefill work, each token once.", "count"],
      prompt_tokens_cached: ["prompt tokens from the cache", "Prefill work that wasn’t needed.", "count"],
      prompt_tokens_recomputed: ["prompt tokens computed again", "After preemptions.", "count"],
      generated_tokens: ["tokens generated", "Counted in the step that made them.", "count"],
      recomputed_tokens: ["tokens computed again", "Prompt and output tokens after preemptions: waste.", "count"],
      prefix_queries_tokens: ["prefix cache: asked", "Prompt tokens looked up, once per admission.", "count"],
      prefix_hit_tokens: ["prefix cache: found", "Of those, found.", "count"],
      preemptions: ["preemptions", "Times a running sequence gave its blocks back to let an older one go on.", "count"],
      kv_evictions: ["evictions", "Cached blocks given up for something else.", "count"],
      engine_steps: ["steps", "Forward passes of the model.", "count"],
      events: ["events", "Facts that the engine told; everything on this page is computed from them.", "count"],
      events_dropped: ["events lost", "Should be 0: otherwise the other numbers miss something.", "count"],
    },
  },
  {
    path: "window", title: "Last minute", says: "Over the complete seconds of the last minute. A dash: nothing to divide by, or too few samples.",
    rows: {
      seconds: ["seconds looked at", "Fewer than 60 just after the start.", "count"],
      prefill_tokens_per_s: ["prefill tokens /s", "Prompt tokens computed, again after preemptions included.", "number"],
      decode_tokens_per_s: ["output tokens /s", "Tokens generated.", "number"],
      steps_per_s: ["steps /s", "Forward passes.", "number"],
      requests_per_s: ["requests ended /s", "However they ended.", "number"],
      preemptions: ["preemptions", "In this minute.", "count"],
      kv_evictions: ["evictions", "In this minute.", "count"],
      recomputed_tokens: ["tokens computed again", "In this minute.", "count"],
      prefix_hit_ratio: ["prefix hits", "Prompt tokens found / looked up.", "percent"],
      decode_batch_mean: ["decode batch", "Sequences per step that decoded any: tokens per read of the weights.", "number"],
      prefill_tokens_per_step: ["prefill tokens per step", "Mean.", "number"],
      decode_tokens_per_step: ["decode tokens per step", "Mean.", "number"],
      busy_ratio: ["busy", "Share of the wall time spent in steps.", "percent"],
      schedule_s: ["schedule", "Deciding who gets how many tokens in which blocks.", "seconds"],
      execute_s: ["execute", "The forward pass.", "seconds"],
      sample_s: ["sample", "Picking tokens from logits.", "seconds"],
      update_s: ["update", "Taking tokens in, publishing blocks, ending requests.", "seconds"],
      "ttft.n": ["TTFT: requests", "First tokens in this minute.", "count"],
      "ttft.p50_s": ["TTFT p50", "Arrival to first token handed to the network, queueing included.", "seconds"],
      "ttft.p90_s": ["TTFT p90", "Needs 10 requests.", "seconds"],
      "ttft.p99_s": ["TTFT p99", "Needs 100 requests.", "seconds"],
      "itl.n": ["ITL: gaps", "Between two tokens of one answer.", "count"],
      "itl.p50_s": ["ITL p50", "Half of the gaps are shorter.", "seconds"],
      "itl.p90_s": ["ITL p90", "Needs 10 gaps.", "seconds"],
      "itl.p99_s": ["ITL p99", "Needs 100 gaps. Far above p50: answers stutter.", "seconds"],
    },
  },
  {
    path: "rings", title: "Memories", says: "Bounded; the newest stay.",
    rows: Object.fromEntries(
      [["events", "For the replay and downloads."], ["steps", "For waterfalls."], ["requests", "Those that ended, for the Requests tab."]].flatMap(([name, says]) => [
        [`${name}.size`, [`${name} kept`, says, "count"]],
        [`${name}.capacity`, [`${name} at most`, "The ring’s capacity.", "count"]],
        [`${name}.overwritten`, [`${name} overwritten`, "Older ones that made room.", "count"]],
      ]),
    ),
  },
  {
    path: "tracing", title: "Tracing", says: "Spans of requests, in memory and on their way to a collector if there is one.",
    rows: {
      spans: ["spans", `Made ${SINCE_START}.`, "count"],
      exporting: ["goes to a collector", "Set by OTEL_EXPORTER_OTLP_ENDPOINT.", "text"],
      spans_exported: ["spans delivered", "To the collector.", "count"],
      spans_dropped: ["spans lost", "By reason; serving is never held up for them.", "map"],
      "traces.size": ["traces kept", "In memory.", "count"],
      "traces.capacity": ["traces at most", "The ring’s capacity.", "count"],
      "traces.overwritten": ["traces overwritten", "Older ones that made room.", "count"],
    },
  },
  {
    path: "service", title: "Service", says: "The HTTP side.",
    rows: {
      ready: ["ready", "Whether a request would be taken now.", "text"],
      engine_state: ["engine’s state", "As the service sees it.", "text"],
      choices_admitted: ["choices admitted", "A request with n choices takes n.", "count"],
      choices_capacity: ["choices at most", "Those that run and --max-queue that wait; one more gets 429.", "count"],
    },
  },
];

/** The value at a path of dots; undefined where there is none. */
export function at(stats, path) {
  return path.split(".").reduce((value, name) => value?.[name], stats);
}
