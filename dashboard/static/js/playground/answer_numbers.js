/** The numbers of one answer, as pairs of name and text. */

import { count, durationText, number } from "../format.js";

/**
 * @param {import("./chat.js").ChatResult} result
 * @param {string} finishReason of the shown choice
 * @returns {[string, string][]} those that the server didn't report are en dashes; its own times only where it tells them
 */
export function answerNumbers(result, finishReason) {
  const usage = result.usage;
  const server = result.serverMetrics;
  const numbers = [
    ["TTFT", durationText(result.ttftMs)],
    ["speed", result.tokensPerSecond === null ? "–" : `${number(result.tokensPerSecond)} tok/s`],
    ["tokens", count(usage?.completion_tokens)],
    ["prompt", count(usage?.prompt_tokens)],
    ["cached", count(usage?.prompt_tokens_details?.cached_tokens)],
    ["finish", finishReason],
    ["total", durationText(result.totalMs)],
  ];
  if (server?.queue_time_ms !== undefined) numbers.push(["queue", durationText(server.queue_time_ms)]);
  return numbers;
}
