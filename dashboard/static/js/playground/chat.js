/** One streamed chat completion: request, stream, numbers. */

import { SseParser } from "../sse.js";

/** The server said no, or broke off. `type` and `param` are those of its error body. */
export class ChatError extends Error {
  constructor(message, { type = "", param = "", status = 0 } = {}) {
    super(message);
    this.name = "ChatError";
    this.type = type;
    this.param = param;
    this.status = status;
  }
}

/**
 * @typedef {object} ChatResult
 * @property {string} text
 * @property {string} finishReason
 * @property {object|null} usage as the server counted
 * @property {number|null} ttftMs from sending the request to the first text
 * @property {number|null} tokensPerSecond (n - 1) / (last - first text), null below two tokens
 * @property {number} totalMs
 * @property {string} requestId
 * @property {string} traceId
 */

/**
 * Send a request and hand over its text as it comes.
 *
 * @param {string} url
 * @param {object} request the JSON body; it must ask for a stream
 * @param {{signal?: AbortSignal, onText?: (text: string) => void, fetch?: typeof fetch, now?: () => number}} options
 * @returns {Promise<ChatResult>}
 * @throws {ChatError} refused, failed in the stream, or ended without a finish
 */
export async function streamChat(url, request, options = {}) {
  const { signal, onText = () => {}, fetch = globalThis.fetch, now = () => performance.now() } = options;
  const started = now();
  const response = await fetch(url, {
    method: "POST",
    headers: { "content-type": "application/json", accept: "text/event-stream" },
    body: JSON.stringify(request),
    signal,
  });
  if (!response.ok) throw await refusal(response);

  const answer = { text: "", finishReason: "", usage: null, firstText: null, lastText: null, done: false };
  const parser = new SseParser();
  const reader = response.body.getReader();
  try {
    while (!answer.done) {
      const { done, value } = await reader.read();
      if (done) break;
      for (const event of parser.feed(value)) take(event, answer, now, onText);
    }
  } finally {
    reader.cancel().catch(() => {});
  }
  if (!answer.finishReason) throw new ChatError("The stream ended before the answer was complete.");
  const { text, finishReason, usage, firstText, lastText } = answer;
  return {
    text,
    finishReason,
    usage,
    ttftMs: firstText === null ? null : firstText - started,
    tokensPerSecond: rate(usage?.completion_tokens, firstText, lastText),
    totalMs: now() - started,
    requestId: response.headers.get("x-request-id") ?? "",
    traceId: response.headers.get("x-trace-id") ?? "",
  };
}

function take(event, answer, now, onText) {
  if (event.data === "[DONE]") {
    answer.done = true;
    return;
  }
  const chunk = parse(event.data);
  if (chunk.error) throw new ChatError(chunk.error.message ?? "The server failed.", chunk.error);
  if (chunk.usage) answer.usage = chunk.usage;
  const choice = chunk.choices?.[0];
  if (!choice) return;
  const text = choice.delta?.content;
  if (text) {
    answer.lastText = now();
    answer.firstText ??= answer.lastText;
    answer.text += text;
    onText(text);
  }
  if (choice.finish_reason) answer.finishReason = choice.finish_reason;
}

function parse(data) {
  try {
    return JSON.parse(data);
  } catch {
    throw new ChatError("The stream holds an event that is not JSON.");
  }
}

async function refusal(response) {
  let error = null;
  try {
    error = (await response.json()).error;
  } catch {
    error = null;
  }
  const message = error?.message ?? `The server answered ${response.status}.`;
  return new ChatError(message, { type: error?.type, param: error?.param, status: response.status });
}

function rate(numTokens, first, last) {
  if (!numTokens || numTokens < 2 || first === null || last <= first) return null;
  return ((numTokens - 1) / (last - first)) * 1000;
}
