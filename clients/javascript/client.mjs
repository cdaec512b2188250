/**
 * The client as a module, without anything of Node's: import it in a browser or elsewhere. A page on another origin needs
 * the server's `--cors-origin`.
 *
 *     const client = new Client({ url: "http://127.0.0.1:8100" });
 *     const { finish, usage, traceId } = await client.stream("Why is the sky blue?", (text) => show(text));
 */
import { Answer, errorMessage, readFinish, readUsage } from "./answer.mjs";
import { BROKEN, Failure, NO_CONNECTION, REFUSED, SILENT, unreadable } from "./failure.mjs";
import { parseJson } from "./json.mjs";
import { SseParser } from "./sse.mjs";
import { isTraceId, newTraceId, newTraceparent } from "./trace_context.mjs";

const LONGEST_WAIT_S = 30;
const BODY_LIMIT = 16 << 20;
const ENDED = "the connection ended before the answer was complete";

export class Client {
  /**
   * @param {object} options
   * @param {string} options.url `http://HOST:PORT`
   * @param {(traceparent: string) => {sent: Promise<void>, isOnKept: boolean}} [options.watch] tells when a request is on its
   *   connection, so that connecting can have a limit of its own (without, only silence has one), and whether that connection
   *   had served before
   * @param {(status: number, seconds: number) => void} [options.onRetry]
   */
  constructor({
    url,
    apiKey = "",
    model = "",
    maxTokens = 64,
    retries = 3,
    connectTimeoutMs = 5000,
    idleTimeoutMs = 60000,
    traceId = "",
    fetch = globalThis.fetch.bind(globalThis),
    watch = () => ({ sent: Promise.resolve(), isOnKept: false }),
    onRetry = () => {},
  }) {
    Object.assign(this, { url, apiKey, model, maxTokens, retries, connectTimeoutMs, idleTimeoutMs, traceId });
    Object.assign(this, { fetch, watch, onRetry });
  }

  /** @returns {Promise<string[]>} the names that the server answers to. @throws {Failure} */
  async models() {
    const { body } = await this._call("/v1/models", "", readBody);
    const { data } = Object(parseBody(body));
    if (!Array.isArray(data)) throw unreadable("JSON");
    return data.map((entry) => Object(entry).id).filter((id) => typeof id === "string");
  }

  /** One answer, whole. @throws {Failure} with the trace id, if there was a connection */
  async chat(prompt) {
    const { body, traceId } = await this._call("/v1/chat/completions", this._chatBody(prompt), readBody);
    try {
      const answer = parseBody(body);
      const choices = Object(answer).choices;
      const choice = Object(Array.isArray(choices) ? choices[0] : null);
      const text = Object(choice.message).content;
      if (typeof text !== "string" || typeof choice.finish_reason !== "string") throw unreadable("JSON");
      return { text, finish: readFinish(choice.finish_reason), usage: readUsage(answer), traceId };
    } catch (error) {
      error.traceId = traceId;
      throw error;
    }
  }

  /**
   * One answer as it is made.
   * @param {(text: string) => void} onText gets each piece as it comes
   * @param {{keepsConnection?: boolean}} [options] read to the end of the response, so that its connection serves again
   * @throws {Failure} with the trace id, if there was a connection
   */
  async stream(prompt, onText, { keepsConnection = false } = {}) {
    const extra = ',"stream":true,"stream_options":{"include_usage":true}';
    const read = (response, limits) => readStream(response, limits, onText, keepsConnection);
    return this._call("/v1/chat/completions", this._chatBody(prompt, extra), read, "text/event-stream");
  }

  _chatBody(prompt, extra = "") {
    const model = this.model ? `"model":${JSON.stringify(this.model)},` : "";
    const messages = JSON.stringify([{ role: "user", content: prompt }]);
    return `{${model}"messages":${messages},"temperature":0,"max_tokens":${this.maxTokens}${extra}}`;
  }

  async _call(path, body, read, accept = "application/json") {
    const sentId = this.traceId || newTraceId();
    for (let triesLeft = this.retries; ; triesLeft--) {
      const startedAt = performance.now();
      const traceparent = newTraceparent(sentId);
      const headers = { accept, traceparent };
      if (body) headers["content-type"] = "application/json";
      if (this.apiKey) headers.authorization = `Bearer ${this.apiKey}`;
      const limits = new Limits(this);
      let traceId = sentId;
      try {
        const response = await this._open(path, { method: body ? "POST" : "GET", headers, body: body || undefined }, limits);
        const named = response.headers.get("x-trace-id") ?? "";
        traceId = isTraceId(named) ? named : sentId;
        const seconds = secondsToWait(response);
        if (triesLeft > 0 && seconds >= 0) {
          await readBody(response, limits);
          limits.end();
          this.onRetry(response.status, seconds);
          await new Promise((resolve) => setTimeout(resolve, seconds * 1000 * (1 + Math.random() / 10)));
          continue;
        }
        if (response.status !== 200) throw await refusal(response, limits);
        return { ...(await read(response, limits)), traceId, startedAt };
      } catch (error) {
        const failure = limits.failureOf(error);
        if (limits.isOnKept() && !limits.hasHead && failure.message === ENDED) {
          // The server gave up the kept connection as the request went out: once more. fetch may take another kept one, and
          // can be told of no fresh one; each of them is met once.
          triesLeft++;
          continue;
        }
        if (failure.exitCode !== NO_CONNECTION) failure.traceId = traceId;
        throw failure;
      } finally {
        limits.end();
      }
    }
  }

  async _open(path, request, limits) {
    const watched = this.watch(request.headers.traceparent);
    watched.sent.then(() => limits.connected());
    limits.isOnKept = () => watched.isOnKept;
    const response = await this.fetch(this.url + path, { ...request, redirect: "manual", signal: limits.signal });
    limits.connected();
    limits.hasHead = true;
    return response;
  }
}

/** The two time limits of one request: to connect, then of silence. */
class Limits {
  constructor({ url, connectTimeoutMs, idleTimeoutMs }) {
    this._authority = url.replace("http://", "");
    this._idleMs = idleTimeoutMs;
    this._controller = new AbortController();
    this._isConnected = this._isOver = false;
    this.hasHead = this.isStream = false;
    this.isOnKept = () => false;
    this.signal = this._controller.signal;
    const late = new Failure(NO_CONNECTION, `no connection to ${this._authority} within ${connectTimeoutMs} ms`);
    this._timer = setTimeout(() => this._controller.abort(late), connectTimeoutMs);
  }

  connected() {
    if (!this._isConnected) this.heard();
    this._isConnected = true;
  }

  /** Something arrived: silence begins anew. */
  heard() {
    if (this._isOver) return;
    clearTimeout(this._timer);
    const silent = new Failure(SILENT, `nothing arrived for ${this._idleMs} ms`);
    this._timer = setTimeout(() => this._controller.abort(silent), this._idleMs);
  }

  end() {
    this._isOver = true;
    clearTimeout(this._timer);
  }

  /** What an exception of fetch or of a body's reader means. */
  failureOf(error) {
    if (error instanceof Failure) return error;
    if (this.signal.aborted) return this.signal.reason;
    if (!(error instanceof TypeError)) throw error;
    const code = String(error.cause?.code ?? "");
    if (/^HPE_|^UND_ERR_HEADERS_OVERFLOW$/.test(code)) return unreadable("HTTP");
    if (!this._isConnected) return new Failure(NO_CONNECTION, `no connection to ${this._authority}`);
    if (this.hasHead && this.isStream) return new Failure(BROKEN, "the stream ended before [DONE]");
    return new Failure(BROKEN, ENDED);
  }
}

async function* bytesOf(response, limits) {
  if (response.body === null) return;
  const reader = response.body.getReader();
  let isOver = false;
  try {
    while (!isOver) {
      const { done, value } = await reader.read();
      limits.heard();
      isOver = done;
      if (!done) yield value;
    }
  } catch (error) {
    isOver = true;
    throw error;
  } finally {
    if (!isOver) await reader.cancel().catch(() => {}); // nobody wants the rest
  }
}

async function readBody(response, limits) {
  const pieces = [];
  let length = 0;
  for await (const piece of bytesOf(response, limits)) {
    length += piece.length;
    if (length > BODY_LIMIT) throw unreadable("HTTP");
    pieces.push(piece);
  }
  const body = new Uint8Array(length);
  let at = 0;
  for (const piece of pieces) {
    body.set(piece, at);
    at += piece.length;
  }
  return { body };
}

async function readStream(response, limits, onText, keepsConnection) {
  const answer = new Answer(onText);
  const events = new SseParser();
  if (!/^text\/event-stream(?:$|[; ])/i.test(response.headers.get("content-type") ?? "")) {
    await response.body?.cancel();
    throw unreadable("not an event stream");
  }
  limits.isStream = true;
  try {
    for await (const piece of bytesOf(response, limits)) {
      if (answer.isDone) continue; // only the end of the body is of interest now
      for (const event of events.feed(piece)) {
        answer.take(event);
        if (answer.isDone) break;
      }
      if (answer.isDone && !keepsConnection) break;
    }
  } catch (error) {
    if (!answer.isDone) throw error;
  }
  answer.end();
  return answer;
}

/** What the body of a refusal says. */
async function refusal(response, limits) {
  const { body } = await readBody(response, limits);
  let message;
  try {
    message = errorMessage(parseJson(body));
  } catch (error) {
    if (!(error instanceof Failure)) throw error;
  }
  const status = `the server answered ${response.status}`;
  return new Failure(REFUSED, message === undefined ? status : `${status}: ${message}`);
}

function parseBody(body) {
  try {
    return parseJson(body);
  } catch (error) {
    throw error instanceof Failure ? unreadable("JSON") : error;
  }
}

/** Seconds that the server wants us to stay away; -1 when the call isn't to be tried again. */
function secondsToWait(response) {
  if (response.status !== 429 && response.status !== 503) return -1;
  const named = response.headers.get("retry-after") ?? "";
  const seconds = /^\d{1,18}$/.test(named) && Number(named) < 1000000 ? Number(named) : 1;
  return seconds <= LONGEST_WAIT_S ? seconds : -1;
}
