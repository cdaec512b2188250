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
 * @typedef {object} TokenEntry as OpenAI spells it
 * @property {string} token
 * @property {number} logprob
 * @property {number[]|null} bytes
 * @property {TokenEntry[]} [top_logprobs]
 */

/**
 * @typedef {object} Choice
 * @property {string} text
 * @property {string} reasoning what some servers send beside the answer
 * @property {TokenEntry[]} tokens empty unless the request asked for log probabilities
 * @property {object[]} toolCalls
 * @property {string} finishReason "" while it runs
 */

/**
 * @typedef {object} ChatResult
 * @property {Choice[]} choices
 * @property {object|null} usage as the server counted
 * @property {object|null} serverMetrics the server's own times, where it reports them
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
 * @param {{signal?: AbortSignal, onChoice?: (index: number, choice: Choice) => void, onOpen?: (ids: object) => void,
 *   fetch?: typeof fetch, now?: () => number}} options onChoice is called after each change of a choice
 * @returns {Promise<ChatResult>}
 * @throws {ChatError} refused, failed in the stream, or ended without a finish
 */
export async function streamChat(url, request, options = {}) {
  const { signal, onChoice = () => {}, onOpen = () => {}, fetch = globalThis.fetch, now = () => performance.now() } = options;
  const started = now();
  const response = await fetch(url, {
    method: "POST",
    headers: { "content-type": "application/json", accept: "text/event-stream" },
    body: JSON.stringify(request),
    signal,
  });
  const ids = { requestId: response.headers.get("x-request-id") ?? "", traceId: response.headers.get("x-trace-id") ?? "" };
  onOpen(ids);
  if (!response.ok) throw await refusal(response);

  const answer = { choices: [], usage: null, serverMetrics: null, firstText: null, lastText: null, done: false };
  const parser = new SseParser();
  const reader = response.body.getReader();
  try {
    while (!answer.done) {
      const { done, value } = await reader.read();
      if (done) break;
      for (const event of parser.feed(value)) take(event, answer, now, onChoice);
    }
  } finally {
    reader.cancel().catch(() => {});
  }
  const { choices, usage, serverMetrics, firstText, lastText } = answer;
  if (!choices.length || choices.some((choice) => !choice?.finishReason)) {
    throw new ChatError("The stream ended before the answer was complete.");
  }
  return {
    choices,
    usage,
    serverMetrics,
    ttftMs: firstText === null ? null : firstText - started,
    tokensPerSecond: rate(usage?.completion_tokens, firstText, lastText),
    totalMs: now() - started,
    ...ids,
  };
}

function take(event, answer, now, onChoice) {
  if (event.data === "[DONE]") {
    answer.done = true;
    return;
  }
  const chunk = parse(event.data);
  if (chunk.error) throw new ChatError(chunk.error.message ?? "The server failed.", chunk.error);
  if (chunk.usage) answer.usage = chunk.usage;
  if (chunk.metrics) answer.serverMetrics = chunk.metrics;
  for (const piece of chunk.choices ?? []) {
    const index = piece.index ?? 0;
    const choice = (answer.choices[index] ??= { text: "", reasoning: "", tokens: [], toolCalls: [], finishReason: "" });
    const delta = piece.delta ?? {};
    const reasoning = delta.reasoning_content ?? delta.reasoning;
    if (delta.content || reasoning || delta.tool_calls?.length) {
      answer.lastText = now();
      answer.firstText ??= answer.lastText;
    }
    choice.text += delta.content ?? "";
    choice.reasoning += reasoning ?? "";
    for (const entry of piece.logprobs?.content ?? []) choice.tokens.push(entry);
    for (const call of delta.tool_calls ?? []) addToolCall(choice.toolCalls, call);
    if (piece.finish_reason) choice.finishReason = piece.finish_reason;
    onChoice(index, choice);
  }
}

function addToolCall(calls, { index = calls.length, id, type, function: part = {} }) {
  const call = (calls[index] ??= { id: "", type: "function", function: { name: "", arguments: "" } });
  if (id) call.id = id;
  if (type) call.type = type;
  call.function.name += part.name ?? "";
  call.function.arguments += part.arguments ?? "";
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
