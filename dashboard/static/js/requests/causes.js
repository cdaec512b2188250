/** Names, colours and sentences of the causes that a request's time is split into, in the order of a request's life. */

export const CAUSES = [
  { key: "tokenize", label: "tokenize", color: "--cause-tokenize", says: "Template and tokenizer, and waiting for one of their threads." },
  { key: "queue_inbox", label: "queue: inbox", color: "--cause-inbox", says: "Until the engine took note of it: mostly the rest of a step that was running." },
  { key: "queue_kv_blocks", label: "queue: KV blocks", color: "--cause-blocks", says: "The head of the queue waited for free KV blocks." },
  { key: "queue_token_budget", label: "queue: token budget", color: "--cause-budget", says: "The head of the queue waited for room in a step’s token budget." },
  { key: "queue_max_num_seqs", label: "queue: sequence slots", color: "--cause-slots", says: "As many sequences ran as may run at once." },
  { key: "queue_shared_prefix", label: "queue: shared prefix", color: "--cause-shared", says: "Another request was computing the same prefix; waiting was cheaper than computing it twice." },
  { key: "queue_next_step", label: "queue: next step", color: "--cause-next", says: "It could have run; the next step had not begun." },
  { key: "prefill", label: "own prefill", color: "--prefill", says: "Its own prompt tokens." },
  { key: "decode", label: "own decode", color: "--decode", says: "Its own output tokens. A batch shares one pass over the weights, so each has all of that time." },
  { key: "interference", label: "interference", color: "--cause-interference", says: "Others’ prompt tokens in the steps it was in, and steps that left it out while it held blocks." },
  { key: "preempted", label: "preempted", color: "--cause-preempted", says: "It had given its KV blocks back and waited to come in again." },
  { key: "recompute", label: "recompute", color: "--cause-recompute", says: "Tokens computed a second time after a preemption." },
  { key: "host", label: "host", color: "--cause-host", says: "Scheduling, sampling, update, and messages between steps." },
  { key: "detokenize", label: "detokenize", color: "--cause-detokenize", says: "Its last tokens into text." },
  { key: "send", label: "send", color: "--cause-send", says: "Until the last byte was handed to the transport; a slow reader shows here." },
  { key: "unattributed", label: "unattributed", color: "--cause-unknown", says: "The rest. While a request runs, the current step is here; after its end it should be nothing." },
];

const NOTHING_S = 1e-6; // what is left over by rounding is not a cause

const KNOWN = new Map(CAUSES.map((cause) => [cause.key, cause]));

/**
 * Shares of the whole, largest remainders rounded up, so that what is printed adds up to 100.0.
 * @param {Record<string, number>} seconds by cause; a cause that is not known keeps its own name
 * @returns {{cause: object, seconds: number, percent: number}[]} without those that took nothing
 */
export function sharesOf(seconds) {
  const order = [...CAUSES.map(({ key }) => key), ...Object.keys(seconds).filter((key) => !KNOWN.has(key))];
  const parts = order
    .filter((key) => (seconds[key] ?? 0) > NOTHING_S)
    .map((key) => ({ cause: KNOWN.get(key) ?? { key, label: key, color: "--cause-unknown", says: "" }, seconds: seconds[key] }));
  const total = parts.reduce((sum, part) => sum + part.seconds, 0);
  if (!total) return [];
  const tenths = parts.map((part) => (part.seconds / total) * 1000);
  const floors = tenths.map(Math.floor);
  let missing = 1000 - floors.reduce((sum, value) => sum + value, 0);
  const byRemainder = tenths.map((value, i) => [value - floors[i], i]).sort((a, b) => b[0] - a[0]);
  for (const [, i] of byRemainder) {
    if (missing-- <= 0) break;
    floors[i]++;
  }
  return parts.map((part, i) => ({ ...part, percent: floors[i] / 10 }));
}
